"""A training job: builds the parts that the settings name, trains, and summarizes the results."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from mpi4py import MPI

from ..agreement.consistency import describe_ranks
from ..communicator import Communicator
from ..support.errors import StallError
from ..support.validation import checked_integer
from . import checkpoint, output, survivors
from .agreement import require_same_data, require_same_settings
from .arrays import on_host, to_host
from .batches import Batches
from .control import ControlChannel
from .curve import Curve, Point
from .datasets import DATASETS
from .loop import BySpeed, Training
from .mean_model import Parts
from .metrics import Clock, Metrics, Progress
from .models import MODELS
from .optimizers import OPTIMIZERS
from .placement import Placement
from .reductions import any_of, broadcast, gathered, reduced
from .registry import Choice
from .replica import Replica
from .schedules import SCHEDULES
from .settings import Settings
from .summary import Summary, Totals
from .synchronizers import METHODS
from .workload import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from .datasets.base import Dataset
    from .models.base import Model
    from .replica import Step

__all__ = ["OnFailure", "Plan", "Point", "Summary", "run"]

OnFailure = Literal["raise", "continue"]
"""If a rank dies: all others raise RankFailedError, or continue."""

NOT_OF_THE_TRAINING = ("epochs", "seconds", "load", "output", "device")
"""Settings that a run that resumes from a checkpoint may change. No schedule depends on the length of a run."""

RESULTS = ("metrics-rank-*.jsonl", "summary.json")
"""Files in the output folder that a run which begins anew deletes: the run before may have had more ranks."""


Scored: TypeAlias = tuple[bool, tuple[Point, ...], tuple[Point, ...], int]

CLOSING_S = 10.0
"""For the other survivors, if a rank dies while they close: a rank that has closed does not wait for them."""


@dataclass(frozen=True)
class Plan:
    """The plan of all ranks: the data, the examples of each rank, and the seconds that each rank works in each step.

    Replicas are made equal every `settle_every` steps or, if it is None, only at the end.
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
    """Return a function that sleeps for the load's time in a step, less the step's time so far if `emulated`."""

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
    on_failure: OnFailure = "raise",
    at_least: int = 1,
) -> Summary:
    """Train with these settings; collective.

    Parameters
    ----------
    settings
        The settings, the same on every rank.
    comm
        The communicator. All its ranks train.
    is_signalled
        Returns whether this rank must stop; called after each step.
    resume
        Continue from the checkpoint in the output folder if there is one.
    show
        Whether rank 0 shows the progress.
    on_failure
        "raise", or "continue": the survivors of a death continue. This requires an MPI that survives deaths, as
        `Communicator.shrink` does. `run` then closes `comm`, and after a death revokes its `mpi_comm`.
    at_least
        With "continue", if fewer ranks are left, training stops as if signalled, so that a job with all ranks can
        resume.

    Returns
    -------
    Summary
        The results, the same on every rank.

    Raises
    ------
    TypeError
        `settings` or `comm` has the wrong type.
    MismatchError
        Settings, `resume`, `on_failure`, `at_least`, the versions of this package or the data differ between ranks.
        The error names ranks and values.
    ValueError
        A setting is impossible, a checkpoint does not fit, the ranks do not share the output folder, or another
        training job is writing to this folder.
    RankFailedError
        Another rank has left after an exception, or has died; see docs/training.md, "A rank that fails".
    """
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: expected Settings, such as from Settings.of, got {type(settings).__name__}")
    if not isinstance(comm, Communicator):
        raise TypeError(f"comm: expected a pycollectives.Communicator, got {type(comm).__name__}")
    if on_failure not in get_args(OnFailure):
        raise ValueError(f"on_failure: expected one of {', '.join(get_args(OnFailure))}; got {on_failure!r}")
    checked_integer("at_least", at_least, at_least=1, at_most=comm.size)
    if settings.by_speed and METHODS.find(settings.method).needs_equal_steps:  # type: ignore[attr-defined]
        raise ValueError(
            f"by_speed: expected false, since method {settings.method.name!r} needs the same number of steps on all "
            "ranks"
        )
    if on_failure == "raise":
        if at_least > 1:
            raise ValueError(f"at_least: expected 1 with on_failure 'raise', got {at_least}")
        with contextlib.closing(_Member(settings, comm, is_signalled, show=show)) as member:
            return member.attempt(comm, resume=resume)
    survivors.require_possible(comm)
    if not METHODS.find(settings.method).can_lose_ranks:  # type: ignore[attr-defined]
        raise ValueError(f"on_failure: expected 'raise', since method {settings.method.name!r} cannot lose a rank")
    with contextlib.closing(_Member(settings, comm, is_signalled, show=show, at_least=at_least)) as member:
        return _with_survivors(member, comm, resume=resume)


def _with_survivors(member: _Member, comm: Communicator, *, resume: bool) -> Summary:
    """Train, and begin again with the survivors whenever ranks die. Closes the communicator."""
    given, outer = comm, sys.exc_info()[1]
    summary = None
    while True:
        try:
            summary = member.attempt(comm, resume=resume)
            comm.close()
            return summary
        except BaseException as error:
            if not (isinstance(error, Exception) and survivors.is_death(error, comm, outer)):
                if comm is not given:
                    comm.abort()
                raise
        try:
            # A rank that has closed does not come any more.
            comm = survivors.shrunk(comm, limit=CLOSING_S if summary is not None else None)
        except StallError:
            if summary is None:
                raise
            return summary


class _Member:
    """One rank of a training job: its state, which outlasts deaths of other ranks, and its attempts to train.

    `number` is this rank's number when the job began. It selects the rank's files and injected load. Survivors continue
    if at least `at_least` ranks are left; if it is 0, a death is an error.
    """

    def __init__(
        self,
        settings: Settings,
        comm: Communicator,
        is_signalled: Callable[[], bool],
        *,
        show: bool,
        at_least: int = 0,
    ) -> None:
        self.settings, self.is_signalled, self.show, self.at_least = settings, is_signalled, show, at_least
        self.is_stopped = False  # by whichever rank, which may have died since
        self.placement: Placement | None = None
        self.number, self.ranks = comm.rank, comm.size
        self.has_begun = False  # the output folder, and the checkpoint in it, are this training's
        self.clock = Clock()
        self.totals = Totals(self.clock, comm.size)
        self.curve: Curve | None = None
        self.parts: Parts | None = None
        self._is_made = False

    @property
    def continues(self) -> bool:
        """Whether survivors continue after a death."""
        return self.at_least > 0

    def close(self) -> None:
        """Delete temporary files."""
        for each in (self.curve, self.parts):
            if each is not None:
                each.close()

    def attempt(self, comm: Communicator, *, resume: bool) -> Summary:
        """Compare settings with the other ranks, and train; collective."""
        settings = self.settings
        on_failure = "continue" if self.continues else "raise"
        require_same_settings(settings, comm, resume=resume, on_failure=on_failure, at_least=self.at_least)
        is_done = self._is_made and (self.training.position >= self.training.steps or self._is_over())
        self.is_stopped = self.is_stopped or (comm.size < self.at_least and not is_done)
        agreed = Placement.agreed(settings, comm)
        self.placement = self.placement or agreed  # the model stays on its device
        with self.placement.in_use(), output.locked(settings.output, comm.mpi_comm):
            channel = ControlChannel(comm, lambda: self.is_stopped or self.is_signalled(), continues=self.continues)
            try:
                with channel as control:
                    return self.train(comm, control, self.placement, resume=resume)
            finally:
                self.is_stopped = self.is_stopped or channel.stopped

    def _make(self, placement: Placement) -> None:
        """Create the model and the other parts. A rank may fail here, so the caller waits for all ranks afterwards."""
        if self._is_made:
            return
        settings = self.settings
        self.plan = Plan.of(settings, rank=self.number, ranks=self.ranks)
        steps_of = self.plan.batches.steps_per_epoch
        self.training = Training(
            self.plan.steps, self.plan.settle_every, by_speed=self.ranks if settings.by_speed else None
        )
        schedule = SCHEDULES.make(settings.schedule)
        self.model = MODELS.make(settings.model, self.plan.dataset, seed=settings.seed)
        placement.place(self.model)
        self.optimizer = OPTIMIZERS.make(
            settings.optimizer, self.model.weights, lambda number: schedule(self._position(number) / steps_of)
        )
        self._is_made = True

    def _position(self, number: int) -> int:
        """Return the step of all ranks together to which step `number` of this rank belongs."""
        return self.training.current if self.training.by_speed else number

    def train(self, comm: Communicator, control: ControlChannel, placement: Placement, *, resume: bool) -> Summary:
        """Train from the state of the rank furthest ahead until all steps are taken or a rank must stop; collective."""
        self._make(placement)
        plan, training, totals = self.plan, self.training, self.totals
        if comm.rank == 0:
            if self.show and not self.has_begun:
                placement.announce()
            if self.curve is None:
                self.curve = Curve(self._folder(), self.model, plan.batches.steps_per_epoch, self.clock)
        if self.parts is None:
            folder = self._folder(f"rank-{self.number:04d}")
            self.parts = Parts(folder, self.model, plan.batches.steps_per_epoch, self.clock)
        control.barrier()  # before methods, whose ranks wait for each other: a rank may have failed until here
        require_same_data(plan.dataset, self.model, comm)
        members = gathered(control.comm, self.number)
        method = self.settings.method
        if comm.size < self.ranks:
            options = METHODS.find(method).for_fewer(comm.size, **method.options)  # type: ignore[attr-defined]
            method = Choice(method.name, options)
        with contextlib.closing(METHODS.make(method, comm, self.model, seed=self.settings.seed)) as synchronizer:
            replica = Replica(self.model, self.optimizer, synchronizer)
            has_begun = any_of(control.comm, self.has_begun)
            if has_begun:
                survivors.continue_from_newest(control.comm, training, replica)
            else:
                # Drawn without a seed, or on other processors, they differ.
                with on_host(self.model.weights) as weights:
                    broadcast(control.comm, weights)
            if self.show and comm.rank == 0 and len(members) < self.ranks:
                print(_continuation(members, self.ranks, training), file=sys.stderr, flush=True)
            totals.among(comm.size)
            batches = plan.batches.among(rank=comm.rank, ranks=comm.size)
            finished = self._take_steps(comm, control, replica, batches, has_begun=has_begun, resume=resume)
        same = _is_same_on_all_ranks(comm, self.model)
        come_to, furthest = reduced(control.comm, training.number), reduced(control.comm, training.position, MPI.MAX)
        finished, points, mean_points, taken = self._score(control, finished)
        sums = totals.sums
        return Summary(
            finished=finished,
            device=str(placement),
            ranks=comm.size,
            lost=tuple(sorted({*range(self.ranks)} - {*members})),
            batch=plan.batches.batch,
            steps=int(furthest) if finished else plan.steps,
            epochs=taken / plan.batches.steps_per_epoch,
            elapsed_s=totals.elapsed_s,
            steps_per_s=_ratio(sums["steps"], comm.size * totals.elapsed_s),
            wait_fraction=None if synchronizer.waits_while_computing else _ratio(sums["wait_s"], sums["spent_s"]),
            active=_ratio(sums["active"], sums["steps"]),
            late=_ratio(sums["late"], sums["steps"]),
            missed=_ratio(sums["missed"], sums["steps"]),
            skipped=0.0 if self.settings.by_speed else _ratio(come_to - sums["steps"], come_to),
            not_finite=int(sums["not_finite"]),
            is_same_on_all_ranks=same,
            curve=points,
            mean_curve=mean_points or points,
        )

    def _take_steps(
        self,
        comm: Communicator,
        control: ControlChannel,
        replica: Replica,
        batches: Batches,
        *,
        has_begun: bool,
        resume: bool,
    ) -> bool:
        """Take steps; return whether all are taken; collective. `has_begun` is True if an earlier attempt began."""
        settings, training, totals = self.settings, self.training, self.totals
        work = _worker(self.plan.seconds[self.number], emulated=bool(settings.load.options.get("work")))
        observers: list[Callable[[Step], None]] = [totals]
        on_settled: list[Callable[[], None]] = [partial(totals.settle, control.comm)]
        with contextlib.ExitStack() as stack:
            if settings.output is not None:
                folder = settings.output / "checkpoint"
                arguments = (folder, comm.mpi_comm, training, replica, self._setting(), {"totals": totals})
                if not has_begun:
                    if resume and checkpoint.exists(folder, comm.mpi_comm):
                        checkpoint.load(*arguments)
                    else:
                        results = (path for pattern in RESULTS for path in folder.parent.glob(pattern))
                        checkpoint.forget(folder, comm.mpi_comm, results)
                path = settings.output / f"metrics-rank-{self.number:04d}.jsonl"
                first = -(-training.taken // self.ranks) if settings.by_speed else training.number
                metrics = Metrics(path, first, self.clock)
                observers.append(stack.enter_context(contextlib.closing(metrics)))
                on_settled += [partial(self._flush, metrics), partial(checkpoint.save, *arguments)]
            assert self.parts is not None
            self.parts.go_on(training, replica.synchronizer.part)
            if comm.rank == 0:
                assert self.curve is not None
                self.curve.go_on(training)
                observers.append(self.curve)
                if self.show:
                    progress = Progress(str(settings.method), training.position, training.steps)
                    observers.append(stack.enter_context(progress))
            observers.append(self.parts)
            if settings.by_speed:
                training.shared = BySpeed(comm.counter(training.taken, name="batches"), self.ranks)
            control.barrier()
            if not self.has_begun:
                self.clock.start(totals.elapsed_s)
            self.has_begun = True
            return training.run(control, replica, batches, work, observers, on_settled, self._is_over)

    def _is_over(self) -> bool:
        seconds = self.settings.seconds
        return seconds is not None and self.has_begun and self.clock() >= seconds

    def _flush(self, metrics: Metrics) -> None:
        """Write the files that a run needs to continue from the next checkpoint."""
        metrics.flush()
        for each in (self.curve, self.parts):
            if each is not None:
                each.flush()

    def _folder(self, *names: str) -> Path | None:
        return None if self.settings.output is None else self.settings.output.joinpath("curve", *names)

    def _score(self, control: ControlChannel, finished: bool) -> Scored:
        """Score the kept models if all steps are taken; return whether all are scored, the points, and rank 0's step.

        Collective. If training was stopped early, nothing is scored, because the job may be killed within a minute.
        """
        scored = None
        if finished:
            assert self.parts is not None
            self.parts.average(control.comm, self.curve, gathered(control.comm, self.training.position)[0])
            control.barrier()
            self.parts.forget()
        if self.curve is not None:
            if finished:
                self.curve.end(self.training.position, self.totals.elapsed_s)
                finished = self.curve.score(self.plan.dataset.validation, control.is_stopped)
            scored = finished, self.curve.points, self.curve.mean_points, self.training.position
        control.barrier()
        return cast("Scored", gathered(control.comm, scored)[0])

    def _setting(self) -> dict[str, Any]:
        """Return the settings that must be the same in a run that continues from a checkpoint."""
        setting = {key: value for key, value in self.settings.as_json().items() if key not in NOT_OF_THE_TRAINING}
        return {**setting, "batch": self.plan.batches.batch, "examples": self.plan.dataset.fingerprints}


def _is_same_on_all_ranks(comm: Communicator, model: Model) -> bool:
    """Whether the replicas are equal, bit for bit; collective."""
    state = model.state()
    arrays = (to_host(model.weights), *(state[name] for name in sorted(state)))
    return all(comm.is_same_on_all_ranks(array) for array in arrays)


def _continuation(members: list[int], ranks: int, training: Training) -> str:
    lost = sorted({*range(ranks)} - {*members})
    return f"{describe_ranks(lost)} died: {len(members)} of {ranks} ranks continue from about step {training.position}"


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
