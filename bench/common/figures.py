"""The figures that plot.py draws, from records alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes

    from .records import Record

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito: safe for colour-blind
MARKERS = "osD^vP"
GREY, LIGHT_GREY = "#444444", "#999999"


@dataclass(frozen=True)
class Panel:
    title: str
    records: list[Record]
    draw: Callable[[Axes, list[Record]], None]


def panels(records: Iterable[Record]) -> list[Panel]:
    """One for each benchmark and setting, in the order of the records; ValueError if there is nothing to draw."""
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        bench = record["bench"]
        if bench not in _KINDS:
            raise ValueError(f"no figure for benchmark {bench!r}; there are {', '.join(_KINDS)}")
        groups[(bench, *(record.get(key) for key in _KINDS[bench].keys))].append(record)
    if not groups:
        raise ValueError("no records")
    return [Panel(_KINDS[bench].title(group[0]), group, _KINDS[bench].draw) for (bench, *_), group in groups.items()]


def draw_skew(axes: Axes, records: list[Record]) -> None:
    """Eager-SGD Fig. 9: mean latency by message size; the speed-up over MPI_Allreduce at each point."""
    _draw_baseline(axes, records, "baseline_us", "MPI_Allreduce", GREY)
    _draw_policies(axes, records)


def draw_latency(axes: Axes, records: list[Record]) -> None:
    _draw_baseline(axes, records, "baseline_us", "MPI_Allreduce", GREY)
    _draw_baseline(axes, records, "iallreduce_us", "MPI_Iallreduce", LIGHT_GREY)
    _draw_policies(axes, records)


def draw_idle(axes: Axes, records: list[Record]) -> None:
    """CPU of a rank's progress thread by number of ranks; the slow-down of the computing above."""
    records = sorted(records, key=lambda record: record["ranks"])
    width = 0.35
    for offset, key, label, colour in (
        (-width / 2, "cpu_fraction", "application sleeps", COLOURS[0]),
        (width / 2, "cpu_fraction_computing", "application computes", COLOURS[1]),
    ):
        heights = [100 * record[key] for record in records]
        axes.bar([place + offset for place in range(len(records))], heights, width, label=label, color=colour)
    for place, record in enumerate(records):
        top = 100 * max(record["cpu_fraction"], record["cpu_fraction_computing"])
        axes.annotate(
            f"slow-down {record['slowdown']:.3f}",
            (place, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_xticks(range(len(records)), [str(record["ranks"]) for record in records])
    axes.set_xlabel("ranks")
    axes.set_ylabel("progress thread, % of a core per rank")
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def size_label(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _draw_policies(axes: Axes, records: list[Record]) -> None:
    by_policy: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_policy[record["policy"]].append(record)
    for index, (policy, cells) in enumerate(by_policy.items()):
        cells = sorted(cells, key=lambda record: record["bytes"])
        active = sum(record["active_mean"] for record in cells) / len(cells)
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(
            [record["bytes"] for record in cells],
            [record["latency_us"]["mean"] for record in cells],
            marker=MARKERS[index % len(MARKERS)],
            color=colour,
            label=f"{policy} ({active:.1f} active)",
        )
        for record in cells:
            axes.annotate(
                f"{record['speedup']:.3g}x",
                (record["bytes"], record["latency_us"]["mean"]),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=colour,
            )
    sizes = sorted({record["bytes"] for record in records})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [size_label(size) for size in sizes], rotation=30, ha="right")
    axes.set_xticks([], minor=True)
    axes.set_xlabel("message size")
    axes.set_ylabel("mean latency (us)")
    axes.grid(axis="y", alpha=0.3)
    axes.margins(x=0.08, y=0.1)
    axes.legend(fontsize=8)


def _draw_baseline(axes: Axes, records: list[Record], key: str, label: str, colour: str) -> None:
    """The mean over the cells of one size: the baseline was measured beside each of them."""
    means: dict[int, list[float]] = defaultdict(list)
    for record in records:
        means[record["bytes"]].append(record[key]["mean"])
    sizes = sorted(means)
    heights = [sum(means[size]) / len(means[size]) for size in sizes]
    axes.plot(sizes, heights, marker="x", linestyle="--", color=colour, label=label)


@dataclass(frozen=True)
class _Kind:
    keys: tuple[str, ...]  # records that differ in one of these do not share a panel
    title: Callable[[Record], str]
    draw: Callable[[Axes, list[Record]], None]


_SWEEP = ("ranks", "path", "ranks_per_node", "dtype", "algorithm", "late")

_KINDS: dict[str, _Kind] = {
    "skew": _Kind(
        (*_SWEEP, "skew", "skew_us", "inject"),
        lambda record: f"{record['ranks']} ranks, {record['skew']} skew of {record['skew_us']:g} us, {record['path']}",
        draw_skew,
    ),
    "latency": _Kind(_SWEEP, lambda record: f"{record['ranks']} ranks, balanced, {record['path']}", draw_latency),
    "idle": _Kind(("path",), lambda record: f"idle, {record['path']}", draw_idle),
}
