"""Draw the pictures that are the same on every machine (`python docs/generate.py --pictures`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pycollectives import policies
from pycollectives.servers import sync as synchronizations
from pycollectives.simulation import workload
from pycollectives.simulation.allreduce import step_columns
from pycollectives.simulation.parameter_server import entries_of, history
from pycollectives.zipline import generate, zipline_linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from pycollectives.policies import Policy
    from pycollectives.servers.sync import Synchronization

COMPUTING, WAITING, BARRIER, BEST = "mediumseagreen", "lightgrey", "black", "tab:red"

# --- Supersteps -----------------------------------------------------------------------------------------------------

SYNCS = ("bsp", "ssp:3", "elastic:15")
INTERVALS = (0.1, 0.11, 0.13, 0.15)
"""Seconds of an iteration, by worker: 1 to 1.5 times the seconds of the fastest worker, as in section 6.1."""
SHOWN = 3.0
"""Seconds."""


class Timeline(NamedTuple):
    """The times of computing and waiting, by worker, as (begin, length) in seconds, and the times of barriers."""

    computing: list[list[tuple[float, float]]]
    waiting: list[list[tuple[float, float]]]
    barriers: list[float]

    def fraction_waiting(self, until: float) -> float:
        """Return the share of the workers' time in which they wait."""
        waited = sum(max(0.0, min(begin + length, until) - begin) for row in self.waiting for begin, length in row)
        return waited / (until * len(self.waiting))


def timeline(sync: Synchronization, work: NDArray[np.float64]) -> Timeline:
    """Return the timeline of a server at zero cost; each worker's row ends with its last iteration."""
    found = history(sync, work)
    computing: list[list[tuple[float, float]]] = [[] for _ in work]
    waiting: list[list[tuple[float, float]]] = [[] for _ in work]
    begins = [0.0] * len(work)
    for time, worker, _, waited in entries_of(found, "release"):
        came = time - waited
        computing[worker].append((begins[worker], came - begins[worker]))
        if waited > 0:
            waiting[worker].append((came, waited))
        begins[worker] = time
    return Timeline(computing, waiting, [end for end, *_ in entries_of(found, "superstep")])


def draw_supersteps(path: Path) -> None:
    """Draw ElasticBSP, Fig. 2: the waiting times under three models with the same intervals."""
    from matplotlib import pyplot

    work = np.repeat(np.array(INTERVALS)[:, None], round(2 * SHOWN / min(INTERVALS)), axis=1)
    figure, rows = pyplot.subplots(len(SYNCS), 1, figsize=(11, 6), sharex=True, layout="constrained")
    for axes, name in zip(rows, SYNCS, strict=True):
        shown = timeline(synchronizations.parse(name), work)
        _draw_timeline(axes, shown)
        axes.set_title(f"{name}: {100 * shown.fraction_waiting(SHOWN):.0f} % of the time waiting", fontsize=10)
    rows[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    rows[-1].set_xlabel("time (s)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_timeline(axes: Axes, shown: Timeline) -> None:
    names = [f"worker {worker}" for worker in range(len(shown.computing))]
    for label, colour, edge, bars in (
        ("computing", COMPUTING, "white", shown.computing),
        ("waiting", WAITING, WAITING, shown.waiting),
    ):
        for row, of_worker in enumerate(bars):
            axes.broken_barh(
                of_worker, (row - 0.4, 0.8), facecolor=colour, edgecolor=edge, label=None if row else label
            )
    for number, time in enumerate(shown.barriers):
        axes.axvline(time, color=BARRIER, linewidth=1.2, label=None if number else "barrier")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, SHOWN)


# --- Windows --------------------------------------------------------------------------------------------------------

WORKERS, LOOKAHEAD, SEED = 10, 15, 7
"""As in Fig. 6; the seed of bench/zipline.py."""


def windows(rows: Sequence[Sequence[int]] | NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (end, length) of each candidate Z, in the order in which ZipLine visits them. It visits all points."""
    latest: dict[int, int] = {}
    found = []
    for time, worker in sorted((int(time), worker) for worker, row in enumerate(rows) for time in row):
        latest[worker] = time
        if len(latest) == len(rows):
            found.append((time, time - min(latest.values())))
    return found


def draw_windows(path: Path) -> None:
    """Draw ElasticBSP, Fig. 6: the wait of the first worker at each possible barrier."""
    from matplotlib import pyplot

    rows = generate(WORKERS, LOOKAHEAD, SEED)
    found, best = windows(rows), zipline_linear(rows)
    lengths = [length for _, length in found]
    chosen = found.index((int(best.t_sync), int(best.d)))
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    axes.plot(lengths, marker=".", linewidth=0.8)
    axes.plot([chosen], [lengths[chosen]], "o", color=BEST, label=f"the next barrier: {lengths[chosen]} ms")
    axes.set_xlabel(f"one of the {len(found)} candidates, in the order of time")
    axes.set_ylabel("the first worker waits (ms)")
    axes.set_ylim(0, 2 * lengths[chosen])
    axes.legend(loc="lower left")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --- Rounds ---------------------------------------------------------------------------------------------------------

LATE, ROUND = "#d55e00", "#0072b2"
POLICIES = {"MPI_Allreduce, or Full()": "full", "Quorum(2)": "quorum:2", "Solo()": "solo"}
RANKS, CALLS, WORK, SKEW, UNTIL = 4, 12, 0.1, 0.3, 1.2
"""Each rank computes for 0.1 s, and longer in rotation; the rows show the first 1.2 s."""


class Rounds(NamedTuple):
    """The calls of each rank as (begin of computing, call, return), the late calls as (rank, time), and round ends."""

    calls: list[list[tuple[float, float, float]]]
    late: list[tuple[int, float]]
    ends: list[float]

    def steps(self, until: float) -> int:
        """Return the number of steps that all ranks together complete."""
        return sum(done <= until for row in self.calls for _, _, done in row)


def rounds_of(policy: Policy, work: NDArray[np.float64]) -> Rounds:
    """Return the rounds of a simulated program in which communication takes no time."""
    columns = step_columns(work, policy)
    calls: list[list[tuple[float, float, float]]] = [[] for _ in work]
    late, ends = [], {}
    order = np.lexsort((columns["call"], columns["rank"]))
    keys = ("rank", "called", "done", "round", "late")
    for rank, called, done, number, was_late in zip(*(columns[key][order].tolist() for key in keys), strict=True):
        calls[rank].append((calls[rank][-1][2] if calls[rank] else 0.0, called, done))
        if was_late:
            late.append((rank, called))
        else:
            ends[number] = done
    return Rounds(calls, late, sorted(ends.values()))


def draw_rounds(path: Path) -> None:
    """Draw the same steps under MPI_Allreduce, a quorum, and solo."""
    from matplotlib import pyplot

    work = workload.make("shifting", ranks=RANKS, calls=CALLS, work=WORK, skew=SKEW, seed=1)
    figure, rows = pyplot.subplots(len(POLICIES), 1, figsize=(8, 6), sharex=True, layout="constrained")
    for axes, (title, text) in zip(rows, POLICIES.items(), strict=True):
        shown = rounds_of(policies.parse(text), work)
        for rank, row in enumerate(shown.calls):
            first = {} if rank else {"label": "computing"}
            bars = [(begin, called - begin) for begin, called, _ in row]
            axes.broken_barh(bars, (rank - 0.35, 0.7), facecolor=COMPUTING, edgecolor="white", **first)
            bars = [(called, done - called) for _, called, done in row if done > called]
            axes.broken_barh(bars, (rank - 0.35, 0.7), facecolor=WAITING, label=None if rank else "waiting")
        axes.vlines(shown.ends, -0.5, RANKS - 0.5, color=ROUND, linewidth=1.2, label="end of a round")
        if shown.late:
            ranks, times = zip(*shown.late, strict=True)
            axes.plot(times, ranks, "D", color=LATE, markersize=6, label="late call: data goes into the next round")
        axes.set_title(f"{title}: {shown.steps(UNTIL)} steps of all ranks", fontsize=11, loc="left")
        axes.set_yticks(range(RANKS), [f"rank {rank}" for rank in range(RANKS)])
        axes.invert_yaxis()
        axes.set_xlim(0, UNTIL)
    handles, labels = rows[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    rows[-1].set_xlabel("time (s)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --- A death --------------------------------------------------------------------------------------------------------

RECOVERING = "#e69f00"
AFTER_A_DEATH = {  # rank: (activity, begin, end), without a unit
    0: (("computing", 0, 2), ("waiting", 2, 5), ("recovering", 5, 6.5), ("waiting", 6.5, 7), ("computing", 7, 10)),
    1: (("computing", 0, 2.6), ("waiting", 2.6, 5), ("recovering", 5, 6.5), ("waiting", 6.5, 7), ("computing", 7, 10)),
    2: (("computing", 0, 3), ("recovering", 5.4, 6.5), ("computing", 6.5, 7), ("computing", 7, 10)),
    3: (("computing", 0, 5), ("recovering", 5, 6.5), ("waiting", 6.5, 7), ("computing", 7, 10)),
}
NOTES = (  # text, where it is, and where its arrow points
    ("the others notice it, and wait\nuntil all survivors call", (1.7, -0.9), (3.3, -0.35)),
    ("they agree on\nthe members", (5.2, -0.9), (5.75, -0.35)),
    ("the same round\ncompletes", (7.5, -0.9), (7.02, -0.45)),
    ("dies", (3.3, 2.0), (3.1, 2.0)),
    ("a spare or\nnew process", (4.0, 2.0), (5.4, 2.0)),
)


def draw_death(path: Path) -> None:
    """Draw what follows the death of rank 2 with `on_failure="continue"`."""
    from matplotlib import pyplot

    colors = {"computing": COMPUTING, "waiting": WAITING, "recovering": RECOVERING}
    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    for rank, spans in AFTER_A_DEATH.items():
        for kind, begin, end in spans:
            axes.broken_barh([(begin, end - begin)], (rank - 0.35, 0.7), facecolor=colors[kind], edgecolor="white")
    axes.plot([3], [2], "x", color="black", markersize=13, markeredgewidth=3)
    axes.vlines([7], -0.5, 3.5, color=ROUND, linewidth=1.5)
    for text, place, target in NOTES:
        axes.annotate(text, target, place, fontsize=10, va="center", arrowprops={"arrowstyle": "->", "shrinkA": 1})
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=color) for color in colors.values()]
    figure.legend(handles, colors, loc="outside lower center", ncols=3, frameon=False)
    axes.set_yticks(range(4), [f"rank {rank}" for rank in range(4)])
    axes.set_ylim(3.6, -1.3)
    axes.set_xlim(0, 10)
    axes.set_xticks([])
    axes.set_xlabel("time")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --- Which method? --------------------------------------------------------------------------------------------------

QUESTIONS = (  # question, the answers that end here with their advice, and the answer that leads to the next question
    ("Must every result have\nthe data of all ranks?", {"yes": "mpi4py, NCCL or Full()"}, "no"),
    ("Do ranks take\nequally long?", {"yes": "mpi4py or NCCL:\nnothing to gain"}, "no"),
    (
        "Is another rank slow\nin each step?",
        {
            "yes; sums or SGD": "partial allreduce,\nQuorum(k)",
            "yes; Adam or clipping": "larger k, or Full():\ncompare the accuracy",
        },
        "no, the same",
    ),
    ("Are all ranks on\none machine?", {"yes": "parameter server,\nElasticBSP or Ringmaster"}, "no"),
    (
        "May ranks be many\niterations apart?",
        {"yes": "AD-PSGD:\npairwise_averaging", "no": 'Hop, mode="skip:10"'},
        "",
    ),
)


def draw_decision(path: Path) -> None:
    """Draw the page on methods as a tree: questions on the left, advice on the right."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 6), layout="constrained")
    question = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "black"}
    advice = {"boxstyle": "square,pad=0.45", "facecolor": "#d5e8f3", "edgecolor": ROUND}
    label = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    row, above = 0, None
    for text, answers, further in QUESTIONS:
        box = axes.text(0.2, row, text, ha="center", va="center", fontsize=11, bbox=question)
        if above is not None:
            between = {"arrowstyle": "<-", "patchA": box.get_bbox_patch(), "patchB": above[0].get_bbox_patch()}
            axes.annotate("", (0.2, above[1]), (0.2, row), arrowprops=between)
            axes.text(0.215, (row + above[1]) / 2, above[2], va="center", fontsize=10)
        for number, (answer, result) in enumerate(answers.items()):
            place, arrow = (0.83, row + number), {"arrowstyle": "<-", "patchB": box.get_bbox_patch()}
            style = {"ha": "center", "va": "center", "fontsize": 11, "bbox": advice}
            axes.annotate(result, (0.2, row), place, arrowprops=arrow, **style)
            axes.text(0.52, row + 0.51 * number, answer, ha="center", va="center", fontsize=10, bbox=label)
        above = (box, row, further)
        row += len(answers)
    axes.set_xlim(0, 1)
    axes.set_ylim(row - 0.5, -0.5)
    axes.axis("off")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


PICTURES: dict[str, Callable[[Path], None]] = {
    "supersteps": draw_supersteps,
    "windows": draw_windows,
    "rounds": draw_rounds,
    "death": draw_death,
    "decision": draw_decision,
}
"""The function that draws each figure, by its name in docs/figures."""
