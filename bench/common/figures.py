"""The figures that plot.py draws from records."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .cells import OTHER_BASELINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes

    from .output import Record

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito, for color-blind readers
MARKERS = "osD^vP"
GREY, LIGHT_GREY = "#444444", "#999999"
NOBODY = "none"  # the slowdown of a run without one


@dataclass(frozen=True)
class Panel:
    title: str
    records: list[Record]
    draw: Callable[[Axes, list[Record]], None]


def panels(records: Iterable[Record]) -> list[Panel]:
    """Return a panel for each benchmark and setting, in the order of the records; ValueError if there are none."""
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        bench = record["bench"]
        if bench not in _KINDS:
            raise ValueError(f"no figure for benchmark {bench!r}; there are {', '.join(_KINDS)}")
        for kind in _KINDS[bench]:
            if kind.shows(record):
                groups[(kind, *(record.get(key) for key in kind.keys))].append(record)
    if not groups:
        raise ValueError("no records")
    return [Panel(kind.title(group[0]), group, kind.draw) for (kind, *_), group in groups.items()]


def draw_skew(axes: Axes, records: list[Record]) -> None:
    """Draw eager-SGD Fig. 9: mean latency by message size, with the speedup over MPI_Allreduce at each point."""
    _draw_baselines(axes, records)
    _draw_policies(axes, records)


def draw_latency(axes: Axes, records: list[Record]) -> None:
    _draw_baselines(axes, records)
    _draw_policies(axes, records)


def draw_idle(axes: Axes, records: list[Record]) -> None:
    """Draw CPU use of a rank's progress thread by number of ranks, labeled with the slowdown of computing."""
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


def draw_group_times(axes: Axes, records: list[Record]) -> None:
    """Draw bars as in Ripples Fig. 15: computing and synchronization time of an iteration."""
    places = range(len(records))
    computing = [record["compute_us"] / 1e3 for record in records]
    synchronising = [record["latency_us"]["mean"] / 1e3 for record in records]
    axes.bar(places, computing, 0.6, label="computing", color=COLOURS[0])
    axes.bar(places, synchronising, 0.6, bottom=computing, label="synchronising", color=COLOURS[1])
    for place, record, below, time in zip(places, records, computing, synchronising, strict=True):
        _annotate(axes, place, below + time, f"{100 * record['sync_fraction']:.0f} %")
    axes.set_ylabel("an iteration, mean (ms); % of time synchronising")
    _finish_bars(axes, [record["generator"] for record in records])


def draw_group_speedups(axes: Axes, records: list[Record]) -> None:
    """Draw Ripples Figs. 17 and 19: the speedup over the allreduce, measured and with zero-cost communication.

    A group of bars for each slowdown.
    """
    slowdowns = list(dict.fromkeys(record["slowdown"] for record in records))
    generators = list(dict.fromkeys(record["generator"] for record in records))
    width = 0.8 / len(slowdowns)
    for index, slowdown in enumerate(slowdowns):
        of_slowdown = {record["generator"]: record for record in records if record["slowdown"] == slowdown}
        shift = (index - (len(slowdowns) - 1) / 2) * width
        label = None if slowdown == NOBODY else f"slowdown {slowdown}"
        shown = [(place + shift, of_slowdown[name]) for place, name in enumerate(generators) if name in of_slowdown]
        places = [place for place, _ in shown]
        heights = [record["speedup"] for _, record in shown]
        axes.bar(places, heights, 0.9 * width, label=label, color=COLOURS[index % len(COLOURS)])
        models = [record["model_speedup"] for _, record in shown]
        axes.scatter(places, models, marker="_", s=250, color=GREY, label=None if index else "at no cost (model)")
        for place, height, model in zip(places, heights, models, strict=True):
            _annotate(axes, place, max(height, model), f"{height:.2f}x")
    axes.axhline(1, color=LIGHT_GREY, linewidth=0.8)
    axes.set_ylabel("iterations per second over MPI_Allreduce's")
    _finish_bars(axes, generators)


def draw_gossip(axes: Axes, records: list[Record]) -> None:
    """Draw AD-PSGD section 5.4: iterations per second of ranks without slowdown, by method and slowdown."""
    slowdowns = list(dict.fromkeys(record["slowdown"] for record in records))
    methods = list(dict.fromkeys(record["method"] for record in records))
    width = 0.8 / len(slowdowns)
    for index, slowdown in enumerate(slowdowns):
        of_slowdown = {record["method"]: record for record in records if record["slowdown"] == slowdown}
        shift = (index - (len(slowdowns) - 1) / 2) * width
        shown = [(place + shift, of_slowdown[name]) for place, name in enumerate(methods) if name in of_slowdown]
        places = [place for place, _ in shown]
        heights = [record["others_iterations_per_s"] for _, record in shown]
        label = "all equal" if slowdown == NOBODY else f"slowdown {slowdown}"
        axes.bar(places, heights, 0.9 * width, label=label, color=COLOURS[index % len(COLOURS)])
        for place, height in zip(places, heights, strict=True):
            _annotate(axes, place, height, f"{height:.3g}")
    axes.set_ylabel("iterations per second of the others")
    _finish_bars(axes, methods)


def draw_exchange(axes: Axes, records: list[Record]) -> None:
    """Draw the time of an exchange, and the time of MPI_Sendrecv and an average, by size."""
    width = 0.35
    places = range(len(records))
    for offset, key, label, colour in (
        (-width / 2, "latency_us", "pairwise averaging", COLOURS[0]),
        (width / 2, "baseline_us", "MPI_Sendrecv", GREY),
    ):
        axes.bar(
            [place + offset for place in places], [r[key]["mean"] for r in records], width, label=label, color=colour
        )
    for place, record in zip(places, records, strict=True):
        _annotate(
            axes, place, max(record["latency_us"]["mean"], record["baseline_us"]["mean"]), f"{record['speedup']:.3g}x"
        )
    axes.set_yscale("log")
    axes.set_xticks(places, [f"{record['bytes'] / 1e6:g} MB" for record in records])
    axes.set_ylabel("an exchange, mean (us)")
    axes.margins(y=0.15)
    axes.legend(fontsize=8)


def draw_zipline(axes: Axes, records: list[Record]) -> None:
    """Draw ElasticBSP Fig. 10: the time of one search by the number of workers."""
    for index, name in enumerate(dict.fromkeys(record["algorithm"] for record in records)):
        cells = sorted((record for record in records if record["algorithm"] == name), key=lambda each: each["workers"])
        axes.plot(
            [record["workers"] for record in cells],
            [record["time_us"]["p50"] for record in cells],
            marker=MARKERS[index % len(MARKERS)],
            color=COLOURS[index % len(COLOURS)],
            linestyle="-" if index < len(COLOURS) else ":",
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("workers")
    axes.set_ylabel("median time of a search (us)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)


def _annotate(axes: Axes, place: float, top: float, text: str) -> None:
    axes.annotate(text, (place, top), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8)


def _finish_bars(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
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
    colours = {policy: COLOURS[index % len(COLOURS)] for index, policy in enumerate(by_policy)}
    for index, (policy, cells) in enumerate(by_policy.items()):
        cells = sorted(cells, key=lambda record: record["bytes"])
        active = sum(record["active_mean"] for record in cells) / len(cells)
        axes.plot(
            [record["bytes"] for record in cells],
            [record["latency_us"]["mean"] for record in cells],
            marker=MARKERS[index % len(MARKERS)],
            color=colours[policy],
            label=f"{policy} ({active:.1f} active)",
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
    for size in sizes:
        _label_speedups(axes, [record for record in records if record["bytes"] == size], colours)


def _label_speedups(axes: Axes, cells: list[Record], colours: dict[str, str]) -> None:
    """Label the speedups of one size; omit a label that has no room between the points."""
    from matplotlib.patheffects import withStroke

    series = [[record["latency_us"]["mean"]] for record in cells]
    series += [
        [record[key]["mean"] for record in cells]
        for key in ("baseline_us", *OTHER_BASELINES.values())
        if key in cells[0]
    ]
    heights = [_points_high(axes, fmean(values)) for values in series]
    for own, record in zip(heights, cells, strict=False):
        side = label_side(own - other for other in heights)
        if not side:
            continue
        axes.annotate(
            speedup_label(record["speedup"]),
            (record["bytes"], record["latency_us"]["mean"]),
            xytext=(0, 6 * side),
            textcoords="offset points",
            ha="center",
            va="bottom" if side > 0 else "top",
            fontsize=8,
            color=colours[record["policy"]],
            path_effects=[withStroke(linewidth=2, foreground="white")],  # readable on top of a line
        )


def _points_high(axes: Axes, value: float) -> float:
    """Return the position of a value on the vertical axis, in points."""
    pixels = axes.transData.transform((1.0, value))[1]
    return float(pixels) * 72 / axes.figure.dpi


LABEL = 20.0  # points between two markers that a label needs


def label_side(below: Iterable[float]) -> int:
    """Return 1 if a label fits above its point, -1 if only below, 0 if neither.

    `below`: the distances of all points of this size below this one, in points; negative for points above it.
    """
    gaps = [gap for gap in below if gap]
    room_above = min((-gap for gap in gaps if gap < 0), default=math.inf)
    room_below = min((gap for gap in gaps if gap > 0), default=math.inf)
    if room_above >= LABEL:
        return 1
    return -1 if room_below >= LABEL else 0


def speedup_label(speedup: float) -> str:
    digits = 0 if speedup >= 10 else 1 if speedup >= 1 else 2
    return f"{speedup:.{digits}f}x"


def _draw_baselines(axes: Axes, records: list[Record]) -> None:
    """Draw the first baseline, and the others that were measured with every cell."""
    _draw_baseline(axes, records, "baseline_us", records[0]["baseline"], GREY)
    for name, key in OTHER_BASELINES.items():
        if all(key in record for record in records):
            _draw_baseline(axes, records, key, name, LIGHT_GREY)


def _draw_baseline(axes: Axes, records: list[Record], key: str, label: str, colour: str) -> None:
    """Draw the baseline's mean over the cells of one size, since it was measured with each."""
    means: dict[int, list[float]] = defaultdict(list)
    for record in records:
        means[record["bytes"]].append(record[key]["mean"])
    sizes = sorted(means)
    heights = [sum(means[size]) / len(means[size]) for size in sizes]
    axes.plot(sizes, heights, marker="x", linestyle="--", color=colour, label=label)


@dataclass(frozen=True)
class _Kind:
    keys: tuple[str, ...]  # records that differ in one of these get different panels
    title: Callable[[Record], str]
    draw: Callable[[Axes, list[Record]], None]
    shows: Callable[[Record], bool] = lambda record: True


_SWEEP = ("ranks", "path", "ranks_per_node", "dtype", "algorithm", "activation", "late")

_GROUPS = ("ranks", "path", "ranks_per_node", "bytes", "compute_ms")


def _workers(record: Record) -> str:
    return f"{record['ranks']} workers, {record['ranks_per_node']} per node, {record['bytes'] / 1e6:g} MB"


def _is_exchange(record: Record) -> bool:
    return bool(record["method"] == "exchange")


_KINDS: dict[str, tuple[_Kind, ...]] = {
    "skew": (
        _Kind(
            (*_SWEEP, "skew", "skew_us", "inject"),
            lambda record: (
                f"{record['ranks']} ranks, {record['skew']} skew of {record['skew_us']:g} us, {record['path']}"
            ),
            draw_skew,
        ),
    ),
    "latency": (_Kind(_SWEEP, lambda record: f"{record['ranks']} ranks, balanced, {record['path']}", draw_latency),),
    "idle": (_Kind(("path",), lambda record: f"idle, {record['path']}", draw_idle),),
    "zipline": (_Kind(("lookahead",), lambda record: f"ZipLine, R = {record['lookahead']}", draw_zipline),),
    "groups": (
        _Kind(
            (*_GROUPS, "slowdown"),
            lambda record: f"{_workers(record)}, slowdown {record['slowdown']}",
            draw_group_times,
        ),
        _Kind(
            _GROUPS,
            lambda record: f"{_workers(record)}, all equally fast",
            draw_group_speedups,
            lambda record: bool(record["slowdown"] == NOBODY),
        ),
        _Kind(
            _GROUPS,
            lambda record: f"{_workers(record)}, some slowed down",
            draw_group_speedups,
            lambda record: bool(record["slowdown"] != NOBODY),
        ),
    ),
    "gossip": (
        _Kind(
            (*_GROUPS, "topology"),
            lambda record: f"{_workers(record)}, topology {record['topology']}",
            draw_gossip,
            lambda record: not _is_exchange(record),
        ),
        _Kind(
            ("ranks", "path", "ranks_per_node", "topology", "neighbor"),
            lambda record: (
                f"an exchange, {record['ranks']} ranks, {record['ranks_per_node']} per node, "
                f"neighbor {record['neighbor']}"
            ),
            draw_exchange,
            _is_exchange,
        ),
    ),
}
