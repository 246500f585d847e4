"""The results of a training job over all its runs: sums over its steps, and their summary."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..agreement.consistency import describe_ranks
from .files import dumps, replace
from .reductions import any_of, reduced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .curve import Point
    from .metrics import Clock
    from .replica import Step
    from .settings import Settings


class Totals:
    """Sums over the steps of all ranks, until replicas were last made equal."""

    NAMES = ("steps", "wait_s", "spent_s", "active", "late", "missed", "not_finite")

    def __init__(self, clock: Clock, ranks: int = 1) -> None:
        self._clock, self._ranks = clock, ranks
        self._settled_with = 0.0  # steps of this rank
        self._of_this_rank = np.zeros(len(self.NAMES))
        self._before = np.zeros(len(self.NAMES))
        self.sums = dict.fromkeys(self.NAMES, 0.0)
        self.elapsed_s = 0.0  # of training until then

    def __call__(self, step: Step) -> None:
        spent, finite = step.compute_s + step.wait_s, math.isfinite(step.loss)
        self._of_this_rank += (1, step.wait_s, spent, step.active, step.late, step.missed, not finite)

    def settle(self, comm: MPI.Comm) -> None:
        """Add up the sums of all ranks; collective. A run without steps changes nothing."""
        taken = self._of_this_rank[0]
        sums = np.empty_like(self._of_this_rank)
        comm.Allreduce(self._of_this_rank, sums)
        any_taken = any_of(comm, bool(taken > self._settled_with))
        if any_taken:
            self.elapsed_s = reduced(comm, self._clock(), MPI.MAX)  # no rank's metrics have a later time
        self._settled_with = taken  # last: if a rank dies before, the time is taken in the next call
        self.sums = dict(zip(self.NAMES, (self._before + sums).tolist(), strict=True))

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the sums for a checkpoint, the same on every rank."""
        values = {"elapsed_s": self.elapsed_s, "ranks": self._ranks, **self.sums}
        return {name: np.array(value) for name, value in values.items()}

    def among(self, ranks: int) -> None:
        """Continue with another number of ranks. Earlier sums are scaled, so that means over ranks do not change."""
        self._before *= ranks / self._ranks
        self._ranks = ranks

    def load_state(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        """Continue from the sums of an earlier run."""
        self.elapsed_s = float(state["elapsed_s"])
        ranks, self._ranks = self._ranks, int(state["ranks"])
        self._before[:] = [state[name] for name in self.NAMES]
        self.among(ranks)


@dataclass(frozen=True)
class Summary:
    """The results of a job, earlier runs included; the same on every rank. Figures are NaN if no step is known.

    Attributes
    ----------
    finished
        Whether all steps were taken or time was over, and the replicas of all epochs were scored. If False, the job was
        stopped.
    device
        Where models computed in the last run: "cpu", "cuda", or "cuda, staged through the host".
    ranks, batch, steps
        Ranks at the end, examples of all ranks in a step, and the steps of each rank, taken or skipped; if time ended
        the training, the most steps that a rank has reached.
    lost
        Ranks that have died, by their numbers in the communicator that `run` was given. Figures cover the others.
    epochs
        Epochs that rank 0 has reached.
    elapsed_s
        Seconds of training, from the first step of each run until its replicas were last made equal.
    steps_per_s
        Steps per second, the mean over ranks.
    wait_fraction
        The share of a step's time that is spent waiting, the mean over ranks and steps. None if the method waits while
        it computes.
    active, late, missed
        Means of `synchronizers.Outcome` over ranks and steps; `late` is a share of steps.
    skipped
        The share of steps that the method skipped, as Hop may, among all steps that ranks have reached.
    not_finite
        Steps of all ranks together whose loss was not finite.
    is_same_on_all_ranks
        Whether the replicas, running statistics included, are equal at the end, bit for bit.
    curve
        The scores of rank 0's replica: at the ends of epochs, and at the end. Models are scored when all steps are
        taken.
    mean_curve
        The scores of the mean of all ranks' replicas, or of EAMSGD's center, when the last rank had reached the end of
        each epoch. It equals `curve` if the method keeps replicas equal, or has a server.
    """

    finished: bool
    device: str
    ranks: int
    lost: tuple[int, ...]
    batch: int
    steps: int
    epochs: float
    elapsed_s: float
    steps_per_s: float
    wait_fraction: float | None
    active: float
    late: float
    missed: float
    skipped: float
    not_finite: int
    is_same_on_all_ranks: bool
    curve: tuple[Point, ...]
    mean_curve: tuple[Point, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values for JSON, except that numbers may be infinite or NaN."""
        return dataclasses.asdict(self)


def report(settings: Settings, summary: Summary) -> None:
    """Write summary.json, if there is an output folder, and print the summary."""
    from rich.console import Console
    from rich.table import Table

    if settings.output is not None:
        text = dumps({"settings": settings.as_json(), **summary.as_json()}, indent=1)
        replace(settings.output / "summary.json", text + "\n")
    table = Table(show_header=False, box=None)
    for name, value in _rows(settings, summary):
        table.add_row(name, value)
    Console().print(table)
    if summary.not_finite:
        text = f"Warning: the loss was not finite in {summary.not_finite} steps of all ranks together."
        Console(stderr=True, soft_wrap=True).print(text, highlight=False)


def _rows(settings: Settings, summary: Summary) -> list[tuple[str, str]]:
    loss, accuracy = "not scored yet", None
    if summary.finished:
        loss, accuracy = f"{summary.curve[-1].loss:.6g}", summary.curve[-1].accuracy
    waiting = summary.wait_fraction
    device = [] if summary.device == "cpu" else [("device", summary.device)]
    return [
        ("method", str(settings.method)),
        *device,
        ("state", "finished" if summary.finished else "stopped, to be resumed" if settings.output else "stopped"),
        *([("lost", describe_ranks(summary.lost))] if summary.lost else []),
        ("batch", f"{summary.batch} examples, {_share(summary)} per rank"),
        ("epochs", f"{summary.epochs:g}"),
        ("validation loss", loss),
        ("validation accuracy", "-" if accuracy is None else f"{100 * accuracy:.2f} %"),
        ("steps/s", f"{summary.steps_per_s:.3f}"),
        ("waiting", "-" if waiting is None else f"{100 * waiting:.1f} % of the time"),
        ("active ranks", f"{summary.active:.2f} of {summary.ranks}"),
        ("late", f"{100 * summary.late:.1f} % of the steps"),
        ("missed rounds", f"{summary.missed:.2f} per step"),
        ("skipped", f"{100 * summary.skipped:.1f} % of the steps"),
        ("replicas", "equal" if summary.is_same_on_all_ranks else "DIFFERENT"),
        ("load", f"{settings.load}" + (", emulated by sleeping" if settings.load.options.get("work") else "")),
    ]


def _share(summary: Summary) -> str:
    whole, rest = divmod(summary.batch, summary.ranks)
    return f"{summary.batch / summary.ranks:.1f}" if rest else str(whole)
