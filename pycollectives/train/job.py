"""A training job: puts together what the settings name, trains, and says what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import loads
from . import checkpoint
from .batches import Batches
from .datasets import DATASETS
from .loop import Replica, Training
from .metrics import Metrics, Progress
from .models import MODELS
from .optimizers import OPTIMIZERS
from .peers import Peers
from .registry import Registry
from .schedules import SCHEDULES
from .sharing import require_same
from .synchronizers import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..communicator import Communicator
    from .datasets.base import Dataset
    from .loop import Step
    from .models.base import Model
    from .registry import Choice
    from .settings import Settings

__all__ = ["Plan", "Point", "Summary", "load_of", "run"]

NOT_OF_THE_TRAINING = ("epochs", "load", "output")
"""Settings that a run which goes on from a checkpoint may change. No schedule depends on how long a training is."""


@dataclass(frozen=True)
class Point:
    """A replica, of rank 0, at the end of an epoch.

    Attributes
    ----------
    epoch
        From 1 on; the last one of a training may be a fraction.
    elapsed_s
        Seconds of this run's training until then.
    loss, accuracy
        On the validation set; accuracy None: the model is no classifier.
    """

    epoch: float
    elapsed_s: float
    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class Summary:
    """What came of a job; the same on every rank.

    Attributes
    ----------
    finished
        Whether all steps were taken: if not, it was stopped.
    ranks, batch, steps
        Ranks, examples of all together in a step, and steps that each was to take.
    elapsed_s
        Seconds of this run's training, from the first step to the last settling.
    steps_per_s
        Steps of this run, the mean over ranks, per second.
    wait_fraction
        Of the time of a step, the mean over ranks and steps.
    active, late, missed
        Of what ranks were given (see `synchronizers.Outcome`), means over ranks and steps: `late` is a share of steps.
    same_everywhere
        Whether the replicas, running statistics included, are equal at the end, bit for bit.
    curve
        The ends of epochs; the last point is of the replica at the end.
    """

    finished: bool
    ranks: int
    batch: int
    steps: int
    elapsed_s: float
    steps_per_s: float
    wait_fraction: float
    active: float
    late: float
    missed: float
    same_everywhere: bool
    curve: tuple[Point, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON writes it."""
        return dataclasses.asdict(self)


class _Snapshots:
    """Copies of a replica at the ends of epochs: they are scored after training, which they would hold up."""

    def __init__(self, model: Model, steps_per_epoch: int) -> None:
        self._model, self._steps_per_epoch = model, steps_per_epoch
        self.begin = time.perf_counter()
        self._taken: list[tuple[float, float, NDArray[np.float32], dict[str, NDArray[Any]]]] = []

    def __call__(self, step: Step) -> None:
        if (step.number + 1) % self._steps_per_epoch == 0:
            self.take(step.number + 1)

    def take(self, number: int) -> None:
        elapsed = time.perf_counter() - self.begin
        self._taken.append((number / self._steps_per_epoch, elapsed, self._model.weights.copy(), self._model.state()))

    def curve(self, dataset: Dataset) -> tuple[Point, ...]:
        """Score them all; leaves the model as it was at the last one."""
        points = []
        for epoch, elapsed, weights, state in self._taken:
            self._model.weights[...] = weights
            self._model.load_state(state)
            points.append(Point(epoch, elapsed, *self._model.evaluate(*dataset.validation)))
        return tuple(points)


class _Totals:
    """Sums over the steps of a rank."""

    def __init__(self) -> None:
        self.sums = np.zeros(6)

    def __call__(self, step: Step) -> None:
        self.sums += (1, step.wait_s, step.compute_s + step.wait_s, step.active, step.late, step.missed)


def load_of(choice: Choice, batches: Batches, *, ranks: int, steps: int, seed: int) -> NDArray[np.float64]:
    """Return the seconds that each rank works in each step, shape (ranks, steps): see `pycollectives.loads`.

    Load `length`: a step takes `work` seconds in the mean, each batch as long as its longest example.
    """
    if choice.name not in (*loads.LOADS, *OWN_LOADS.names):
        raise ValueError(f"load: expected one of {', '.join((*loads.LOADS, *OWN_LOADS.names))}; got {choice.name!r}")
    if choice.name in OWN_LOADS.names:
        return np.asarray(OWN_LOADS.make(choice, batches, ranks, steps))
    for key, value in choice.options.items():
        if not isinstance(value, int | float):
            raise ValueError(f"load {choice.name!r}: {key}: expected a number, got {value!r}")
    options = {"work": 0.0, "skew": 0.0, **choice.options}
    return loads.make(choice.name, ranks=ranks, calls=steps, seed=seed, **options)


def _trace(batches: Batches, ranks: int, steps: int, *, file: str) -> NDArray[np.float64]:
    return loads.from_csv(Path(file), ranks=ranks, calls=steps)


def _length(batches: Batches, ranks: int, steps: int, *, work: float = 0.0) -> NDArray[np.float64]:
    return batches.work(steps) * work


OWN_LOADS = Registry("load", {"trace": f"{__name__}:_trace", "length": f"{__name__}:_length"})
"""Beside those of `pycollectives.loads`."""


@dataclass(frozen=True)
class Plan:
    """What the settings say of every rank: the data, who takes which examples, and how long each works in each step."""

    dataset: Dataset
    batches: Batches
    steps: int
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, settings: Settings, *, rank: int, ranks: int) -> Plan:
        """Return the plan, with the batches of one rank."""
        dataset = DATASETS.make(settings.data, seed=settings.seed)
        batches = Batches(dataset, settings.batch_of(ranks), rank=rank, ranks=ranks, seed=settings.seed)
        steps = max(1, round(settings.epochs * batches.steps_per_epoch))
        seconds = load_of(settings.load, batches, ranks=ranks, steps=steps, seed=settings.seed)
        return cls(dataset, batches, steps, seconds)


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
        Whether this rank has been told to stop; asked after each step.
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
    MismatchError
        Settings, `resume` or the versions of this package differ between ranks; names ranks and values.
    ValueError
        A setting cannot be met, a checkpoint does not fit, or the ranks do not share the output folder.
    RankFailedError
        Another rank has left by an exception; see docs/training.md, "A rank that fails".
    """
    require_same(settings, comm, resume=resume)
    with Peers(comm, is_signalled) as peers:
        return _run(settings, comm, peers, resume=resume, show=show)


def _run(settings: Settings, comm: Communicator, peers: Peers, *, resume: bool, show: bool) -> Summary:
    plan = Plan.of(settings, rank=comm.rank, ranks=comm.size)
    dataset, batches = plan.dataset, plan.batches
    steps_of = batches.steps_per_epoch
    settle_every = None if settings.settle_epochs is None else max(1, round(settings.settle_epochs * steps_of))
    training = Training(plan.steps, settle_every)
    work = _worker(plan.seconds[comm.rank], emulated=bool(settings.load.options.get("work")))
    schedule = SCHEDULES.make(settings.schedule)
    model = MODELS.make(settings.model, dataset, seed=settings.seed)
    optimizer = OPTIMIZERS.make(settings.optimizer, model.weights, lambda number: schedule(number / steps_of))
    shared = {"seed": settings.seed}
    peers.meet()  # before methods, whose ranks wait for each other: a rank may have failed until here

    folder = settings.output
    setting = {key: value for key, value in settings.as_json().items() if key not in NOT_OF_THE_TRAINING}
    setting["batch"] = batches.batch
    totals, snapshots = _Totals(), _Snapshots(model, steps_of)
    with contextlib.ExitStack() as stack:
        synchronizer = stack.enter_context(contextlib.closing(METHODS.make(settings.method, comm, model, **shared)))
        replica = Replica(model, optimizer, synchronizer)
        on_settled: list[Callable[[], None]] = []
        observers: list[Callable[[Step], None]] = [totals]
        if folder is not None:
            arguments = (folder / "checkpoint", comm.comm, training, replica, setting)
            if resume and checkpoint.exists(folder / "checkpoint", comm.comm):
                checkpoint.load(*arguments)
            metrics = Metrics(folder / f"metrics-rank-{comm.rank:04d}.jsonl", training.number)
            observers.append(stack.enter_context(contextlib.closing(metrics)))
            on_settled = [metrics.flush, partial(checkpoint.save, *arguments)]
        if comm.rank == 0:
            observers.append(snapshots)
            if show:
                observers.append(stack.enter_context(Progress(str(settings.method), training.number, training.steps)))
        peers.meet()
        begin = snapshots.begin = time.perf_counter()
        finished = training.run(peers, replica, batches, work, observers, on_settled)
        elapsed = time.perf_counter() - begin
    snapshots.take(training.number)
    curve = partial(snapshots.curve, dataset)
    return _summary(comm, peers, training, batches.batch, finished, elapsed, totals, model, curve)


def _summary(
    comm: Communicator,
    peers: Peers,
    training: Training,
    batch: int,
    finished: bool,
    elapsed: float,
    totals: _Totals,
    model: Model,
    curve: Callable[[], tuple[Point, ...]],
) -> Summary:
    state = model.state()
    replica = (model.weights, *(state[name] for name in sorted(state)))
    same = all(comm.same_everywhere(array) for array in replica)
    sums = np.empty_like(totals.sums)
    peers.comm.Allreduce(totals.sums, sums)
    taken, wait, spent, active, late, missed = sums.tolist()
    steps = max(taken, 1)  # a run that went on from the end
    elapsed = peers.comm.bcast(elapsed)
    scored = curve() if comm.rank == 0 else None
    peers.meet()
    return Summary(
        finished=finished,
        ranks=comm.size,
        batch=batch,
        steps=training.steps,
        elapsed_s=elapsed,
        steps_per_s=steps / comm.size / elapsed,
        wait_fraction=wait / max(spent, 1e-9),
        active=active / steps,
        late=late / steps,
        missed=missed / steps,
        same_everywhere=same,
        curve=cast("tuple[Point, ...]", peers.comm.bcast(scored)),
    )
