"""A training job: puts together what the settings name, trains, and summarizes the results."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..communicator import Communicator
from . import checkpoint, output
from .agreement import require_same_data, require_same_settings
from .arrays import on_host, to_host
from .batches import Batches
from .control import ControlChannel
from .curve import Curve, Point
from .datasets import DATASETS
from .loop import Training
from .metrics import Clock, Metrics, Progress
from .models import MODELS
from .optimizers import OPTIMIZERS
from .placement import Placement
from .replica import Replica
from .schedules import SCHEDULES
from .settings import Settings
from .summary import Summary, Totals
from .synchronizers import METHODS
from .workload import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from .datasets.base import Dataset
    from .replica import Step

__all__ = ["Plan", "Point", "Summary", "run"]

NOT_OF_THE_TRAINING = ("epochs", "load", "output", "device")
"""Settings that a run which goes on from a checkpoint may change. No schedule depends on how long a training is."""

RESULTS = ("metrics-rank-*.jsonl", "summary.json")
"""Files in the output folder that a run which begins anew deletes: the run before may have had more ranks."""


@dataclass(frozen=True)
class Plan:
    """What the settings say of every rank: the data, who takes which examples, and how long each works in each step.

    `settle_every`: steps between two times that replicas are made equal; None: only at the end.
    """

    dataset: Dataset
    batches: Batches
    steps: int
    settle_every: int | None
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, settings: Settings, *, rank: int, ranks: int) -> Plan:
        """Return the plan, with the batches of one rank."""
        dataset = DATASETS.make(settings.data, seed=settings.seed)
        batches = Batches(dataset, settings.batch_of(ranks), rank=rank, ranks=ranks, seed=settings.seed)
        steps = max(1, round(settings.epochs * batches.steps_per_epoch))
        every = settings.settle_epochs
        settle_every = None if every is None else max(1, round(every * batches.steps_per_epoch))
        seconds = workload_of(settings.load, batches, ranks=ranks, steps=steps, seed=settings.seed)
        return cls(dataset, batches, steps, settle_every, seconds)


def _worker(seconds: NDArray[np.float64], emulated: bool) -> Callable[[int, float], None]:
    """Return what sleeps within a step: until the load's time since its begin is over, or for that time on top."""

    def work(number: int, begin: float) -> None:
        spent = time.perf_counter() - begin if emulated else 0.0
        time.sleep(max(0.0, seconds[number] - spent))

    return work


def run(
    settings: Settings,
    comm: Communicator,
    *,
    is_signalled: Callable[[], bool] = lambda: False,
    resume: bool = False,
    show: bool = False,
) -> Summary:
    """Train as the settings say; collective.

    Parameters
    ----------
    settings
        The same on every rank.
    comm
        All ranks train.
    is_signalled
        Whether this rank is to stop; called after each step.
    resume
        Go on from the checkpoint in the output folder if there is one.
    show
        Progress on rank 0.

    Returns
    -------
    Summary
        The same on every rank.

    Raises
    ------
    TypeError
        `settings` or `comm` are something else.
    MismatchError
        Settings, `resume`, the versions of this package or the data differ between ranks; names ranks and values.
    ValueError
        A setting cannot be met, a checkpoint does not fit, the ranks do not share the output folder, or another
        training writes there.
    RankFailedError
        Another rank has left by an exception; see docs/training.md, "A rank that fails".
    """
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: expected Settings, as Settings.of makes them, got {type(settings).__name__}")
    if not isinstance(comm, Communicator):
        raise TypeError(f"comm: expected a pycollectives.Communicator, got {type(comm).__name__}")
    require_same_settings(settings, comm, resume=resume)
    placement = Placement.agreed(settings, comm)
    with (
        placement.in_use(),
        output.locked(settings.output, comm.mpi_comm),
        ControlChannel(comm, is_signalled) as control,
    ):
        return _train_and_score(settings, placement, comm, control, resume=resume, show=show)


def _train_and_score(
    settings: Settings,
    placement: Placement,
    comm: Communicator,
    control: ControlChannel,
    *,
    resume: bool,
    show: bool,
) -> Summary:
    plan = Plan.of(settings, rank=comm.rank, ranks=comm.size)
    steps_of = plan.batches.steps_per_epoch
    training = Training(plan.steps, plan.settle_every)
    schedule = SCHEDULES.make(settings.schedule)
    model = MODELS.make(settings.model, plan.dataset, seed=settings.seed)
    placement.place(model)
    if show and comm.rank == 0:
        placement.announce()
    optimizer = OPTIMIZERS.make(settings.optimizer, model.weights, lambda number: schedule(number / steps_of))
    clock = Clock()
    totals = Totals(control.comm, clock)
    with contextlib.ExitStack() as stack:
        curve = None
        if comm.rank == 0:
            folder = None if settings.output is None else settings.output / "curve"
            curve = stack.enter_context(contextlib.closing(Curve(folder, model, steps_of, clock)))
        control.barrier()  # before methods, whose ranks wait for each other: a rank may have failed until here
        require_same_data(plan.dataset, model, comm)
        with on_host(model.weights) as weights:
            control.comm.Bcast(weights)  # drawn without a seed, or on another kind of processor, they differ
        with contextlib.closing(METHODS.make(settings.method, comm, model, seed=settings.seed)) as synchronizer:
            replica = Replica(model, optimizer, synchronizer)
            this_run = _Run(settings, comm, control, plan, training, replica, clock, totals, curve)
            finished = this_run.train(resume, show)
        same = this_run.is_same_on_all_ranks()
        come_to = control.comm.allreduce(training.number)
        finished, points, taken = this_run.score(finished)
    sums = totals.sums
    return Summary(
        finished=finished,
        device=str(placement),
        ranks=comm.size,
        batch=plan.batches.batch,
        steps=plan.steps,
        epochs=taken / steps_of,
        elapsed_s=totals.elapsed_s,
        steps_per_s=_ratio(sums["steps"], comm.size * totals.elapsed_s),
        wait_fraction=None if synchronizer.waits_while_computing else _ratio(sums["wait_s"], sums["spent_s"]),
        active=_ratio(sums["active"], sums["steps"]),
        late=_ratio(sums["late"], sums["steps"]),
        missed=_ratio(sums["missed"], sums["steps"]),
        skipped=_ratio(come_to - sums["steps"], come_to),
        not_finite=int(sums["not_finite"]),
        is_same_on_all_ranks=same,
        curve=points,
    )


@dataclass(frozen=True)
class _Run:
    """One run of a training; its parts, on one rank. The curve is rank 0's."""

    settings: Settings
    comm: Communicator
    control: ControlChannel
    plan: Plan
    training: Training
    replica: Replica
    clock: Clock
    totals: Totals
    curve: Curve | None

    def train(self, resume: bool, show: bool) -> bool:
        """Whether all steps are taken; collective."""
        settings, training, totals = self.settings, self.training, self.totals
        work = _worker(self.plan.seconds[self.comm.rank], emulated=bool(settings.load.options.get("work")))
        observers: list[Callable[[Step], None]] = [totals]
        on_settled: list[Callable[[], None]] = [totals.settle]
        with contextlib.ExitStack() as stack:
            if settings.output is not None:
                folder, comm = settings.output / "checkpoint", self.comm.mpi_comm
                arguments = (folder, comm, training, self.replica, self._setting(), {"totals": totals})
                if resume and checkpoint.exists(folder, comm):
                    checkpoint.load(*arguments)
                else:
                    results = (path for pattern in RESULTS for path in folder.parent.glob(pattern))
                    checkpoint.forget(folder, comm, results)
                path = settings.output / f"metrics-rank-{comm.rank:04d}.jsonl"
                metrics = Metrics(path, training.number, self.clock)
                observers.append(stack.enter_context(contextlib.closing(metrics)))
                on_settled += [partial(self._flush, metrics), partial(checkpoint.save, *arguments)]
            if self.curve is not None:
                self.curve.go_on(training)
                observers.append(self.curve)
                if show:
                    progress = Progress(str(settings.method), training.number, training.steps)
                    observers.append(stack.enter_context(progress))
            self.control.barrier()
            self.clock.start(totals.elapsed_s)
            return training.run(self.control, self.replica, self.plan.batches, work, observers, on_settled)

    def _flush(self, metrics: Metrics) -> None:
        """Write what a run needs that goes on from the checkpoint that comes next."""
        metrics.flush()
        if self.curve is not None:
            self.curve.flush()

    def is_same_on_all_ranks(self) -> bool:
        """Whether the replicas are equal, bit for bit; collective."""
        model = self.replica.model
        state = model.state()
        arrays = (to_host(model.weights), *(state[name] for name in sorted(state)))
        return all(self.comm.is_same_on_all_ranks(array) for array in arrays)

    def score(self, finished: bool) -> tuple[bool, tuple[Point, ...], int]:
        """Score rank 0's replicas if all steps are taken: whether that is done, the points, its steps; collective.

        One that was stopped scores nothing: it may have a minute until it is killed.
        """
        scored = None
        if self.curve is not None:
            if finished:
                self.curve.end(self.training.number, self.totals.elapsed_s)
                finished = self.curve.score(self.plan.dataset.validation, self.control.is_stopped)
            scored = finished, self.curve.points, self.training.number
        self.control.barrier()
        return cast("tuple[bool, tuple[Point, ...], int]", self.control.comm.bcast(scored))

    def _setting(self) -> dict[str, Any]:
        """What a run that goes on must share."""
        setting = {key: value for key, value in self.settings.as_json().items() if key not in NOT_OF_THE_TRAINING}
        return {**setting, "batch": self.plan.batches.batch, "examples": self.plan.dataset.fingerprints}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
