"""Draw the pictures that the simulators compute, the same on every machine (`python docs/generate.py --pictures`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pycollectives.servers import sync as synchronizations
from pycollectives.simulation.parameter_server import entries_of, history
from pycollectives.zipline import generate, zipline_linear

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

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
