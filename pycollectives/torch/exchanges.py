"""How ranks exchange parameters: one class for each method of a `DecentralizedOptimizer`, and a table of them.

A class says what happens around the update that a rank computes with its own gradient: `before_update`, `after_update`.
After an error both may be called again, and continue where they were, unless the class excludes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from ..hop.collective import Hop as HopCollective
from ..neighbor_averaging.d_psgd import NeighborAveraging
from ..neighbor_averaging.pairwise import PairwiseAveraging
from ..neighbor_averaging.push_sum import PushSum
from ..partial_reduce.collective import PartialReduce
from ..servers.arguments import checked_sync
from ..servers.collective import ParameterServer as Server
from ..servers.sync import EAMSGD
from ..servers.update import SGD
from .deadlock_guard import Waits
from .exact_mean import ExactMean

if TYPE_CHECKING:
    from ..communicator import Communicator
    from ..context import AnyCollective
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .shown import ShownParameters

__all__ = ["EXCHANGES", "Averaging", "Exchange"]

Averaging = PairwiseAveraging | NeighborAveraging | PushSum | HopCollective | PartialReduce | Server
AveragingT = TypeVar("AveragingT", bound=Averaging)
StepwiseT = TypeVar("StepwiseT", bound=NeighborAveraging | PushSum | HopCollective | PartialReduce)

NO_END = 1 << 40
"""Iterations: training says when it ends."""


class Exchange(ABC, Generic[AveragingT]):
    """One rank's side of a method; collective to make.

    Attributes
    ----------
    averaging
        What it stands on. It is another one after a flush of some methods.
    """

    waits: ClassVar[Waits]
    topology: ClassVar[str | None]
    """By default; None: the method has none."""

    options: ClassVar[tuple[str, ...]]
    """That it takes besides, those of the collective."""

    averaging: AveragingT

    def __init__(self, comm: Communicator, shown: ShownParameters, name: str, **options: Any) -> None:
        self._comm = comm
        self._shown = shown
        self._arguments = {"name": name, **options}
        self.join()

    @classmethod
    def check(cls, **options: Any) -> None:
        """Raise ValueError where an option is one of the collective's, and not of this method's."""

    @abstractmethod
    def join(self) -> None:
        """Take part, with the model that is shown; collective."""

    def before_update(self, deadline: Deadline) -> None:
        """Do what comes before the rank computes its update."""

    @abstractmethod
    def after_update(self, deadline: Deadline) -> None:
        """Hand over what the update has changed, and show the model at which the next gradient is computed."""

    def start_flush(self) -> None:
        """Let no rank wait for this one; without waiting. Again does nothing."""

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Deliver what still waits; collective."""

    def end_flush(self, rejoin: bool) -> None:
        """Show the model that came of it, and take part again if training may go on; collective."""

    @abstractmethod
    def equalize(self, deadline: Deadline) -> None:
        """Show the mean of all ranks' models, after a flush; collective."""

    def leave(self) -> None:
        """Take no further part; without waiting."""
        self.averaging.leave()

    def abort(self) -> int:
        """Leave at once; return how many contributions are lost."""
        return self.averaging.abort()

    @property
    def collectives(self) -> list[AnyCollective]:
        """All that it stands on."""
        return [self.averaging]


class AdPsgd(Exchange[PairwiseAveraging]):
    """AD-PSGD (Lian et al. 2018, Algorithm 1): the update of an older x' is added to whatever the model has become."""

    waits = Waits.NEVER
    topology = "bipartite-exponential"
    options = ("pace", "rate", "order", "seed", "weighting")

    def join(self) -> None:
        """Make the model that is averaged with neighbors."""
        self.averaging = self._comm.pairwise_averaging(self._shown.values, **self._arguments)
        self._model = np.empty_like(self._shown.values)

    def after_update(self, deadline: Deadline) -> None:
        """Add the update, and show what the model is now: x' of the next step."""
        self._apply()
        self._shown.show(self.averaging.read(self._model))

    def equalize(self, deadline: Deadline) -> None:
        """Let the library do it."""
        self._apply()
        self._shown.show(self.averaging.equalize(timeout=deadline.remaining()))

    def _apply(self) -> None:
        self.averaging.apply(self._shown.change())
        self._shown.take_change()


class A2cid2(AdPsgd):
    """AD-PSGD with momentum between averages (Nabli, Belilovsky and Oyallon 2023)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, acceleration="a2cid2", **options)


class WithMean(Exchange[AveragingT]):
    """A method whose ranks take the mean of all their models too, where those settle."""

    def __init__(self, comm: Communicator, shown: ShownParameters, name: str, **options: Any) -> None:
        self._mean = ExactMean(comm, shown.values, f"{name}.mean")
        super().__init__(comm, shown, name, **options)

    def leave(self) -> None:
        """Take no further part; without waiting."""
        try:
            super().leave()
        finally:
            self._mean.leave()

    def abort(self) -> int:
        """Leave at once."""
        try:
            self._mean.abort()
        finally:
            discarded = super().abort()
        return discarded

    @property
    def collectives(self) -> list[AnyCollective]:
        """All that it stands on."""
        return [*super().collectives, self._mean.rounds]


class Stepwise(WithMean[StepwiseT]):
    """Ranks average step by step, and wait for the models of others.

    To flush is to settle: each rank leaves, so that those with more steps go on without it, all take the mean of all
    models, and make the collective anew.
    """

    waits = Waits.DATA
    _left: bool  # and shows the settled model
    _settled: Array | None = None  # this rank's part of the mean, between two calls of `wait_for_flush`

    def start_flush(self) -> None:
        """Leave the neighbors."""
        self.averaging.leave()

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Take what was on its way, and the mean over ranks."""
        if self._left:
            return
        if self._settled is None:
            self._settled = self._sum(deadline)
        self._shown.show(self._mean(self._settled, deadline))
        self._settled = None
        self._left = True

    def end_flush(self, rejoin: bool) -> None:
        """Show the mean."""
        if rejoin:
            self.join()

    def equalize(self, deadline: Deadline) -> None:
        """Nothing: models are equal after a flush."""

    def join(self) -> None:
        """Make the collective."""
        self.averaging = self._make()
        self._model: Array = self._shown.values.copy()  # before it is rounded to be shown
        self._left = False

    @abstractmethod
    def _make(self) -> StepwiseT:
        """Make the collective."""

    @abstractmethod
    def _sum(self, deadline: Deadline) -> Array:
        """Return this rank's part of the sum over ranks, of which the mean is taken, after it has left."""


class DPsgd(Stepwise[NeighborAveraging]):
    """D-PSGD (Lian et al. 2017, Algorithm 1): models are averaged while ranks compute gradients at them."""

    topology = "ring"
    options = ("weights",)
    _arrived: bool  # the average of the step that was started

    def join(self) -> None:
        """Send the neighbors the first model."""
        super().join()
        self._start()

    def before_update(self, deadline: Deadline) -> None:
        """Wait for the average; the gradient was computed at the models before it."""
        if not self._arrived:
            self._step.wait(out=self._model, timeout=deadline.remaining())
            self._arrived = True

    def after_update(self, deadline: Deadline) -> None:
        """Add the update to the average, and send the sum, which is the model of the next step."""
        self._model += self._shown.change()
        self._shown.show(self._model)
        self._start()

    def _start(self) -> None:
        self._step = self.averaging.start(self._model)
        self._arrived = False

    def _make(self) -> NeighborAveraging:
        return self._comm.neighbor_averaging(self._shown.values, **self._arguments)

    def _sum(self, deadline: Deadline) -> Array:
        return self.averaging.final(timeout=deadline.remaining()) + self._shown.change()


class Sgp(Stepwise[PushSum]):
    """SGP (Assran et al. 2019, Algorithms 1 and 2): parameters are de-biased, x / weight; updates are added to x."""

    topology = "one-peer-exponential"
    options = ("overlap", "weights")

    def join(self) -> None:
        """Begin with a weight of 1."""
        super().join()
        self._started = False

    def after_update(self, deadline: Deadline) -> None:
        """Give shares of the sum, take those that have come, and show the de-biased model."""
        if not self._started:
            self._step = self.averaging.start(self._model + self._shown.change())
            self._started = True
        self._step.wait(out=self._model, timeout=deadline.remaining())
        self._started = False
        self._shown.show(self._model)

    def _make(self) -> PushSum:
        return self._comm.push_sum(self._shown.values, **self._arguments)

    def _sum(self, deadline: Deadline) -> Array:
        change = self._shown.change()
        model = self.averaging.final(timeout=deadline.remaining()) if self.averaging.steps else self._model
        return model * self.averaging.weight + change


class Hop(Stepwise[HopCollective]):
    """Hop (Luo et al. 2019, Fig. 4): models are averaged with the neighbors', which may be some iterations apart."""

    topology = "ring-based"
    options = ("mode", "skip", "max_ig", "computation")
    _stepped: bool  # the iteration has ended, and the next has not begun

    def join(self) -> None:
        """Send the neighbors the first model."""
        super().join()
        self._stepped = True
        self._enter(None)

    def after_update(self, deadline: Deadline) -> None:
        """Add the update to the average, and show it as the next iteration begins."""
        if not self._stepped:
            self.averaging.step(self._shown.change(), timeout=deadline.remaining())
            self._stepped = True
        self._enter(deadline.remaining())

    def _enter(self, timeout: float | None) -> None:
        next(self.averaging.iterations(NO_END, timeout=timeout))
        self._stepped = False
        self._shown.show(self.averaging.parameters)

    def _make(self) -> HopCollective:
        return self._comm.hop(self._shown.values, **self._arguments)

    def _sum(self, deadline: Deadline) -> Array:
        changed = self._shown.change()
        return self.averaging.parameters if self._stepped else self.averaging.parameters + changed


class PReduce(Stepwise[PartialReduce]):
    """P-Reduce (Luo et al. 2020, section 3): the updated model is averaged in a group that a generator forms."""

    topology = None
    options = ("groups", "weighting", "coordinator_rank")

    def after_update(self, deadline: Deadline) -> None:
        """Average the updated model with this rank's next group, and show it; after an error it cannot go on."""
        if self.averaging.failed is None:
            self._model += self._shown.change()
        self.averaging.average(self._model, timeout=deadline.remaining())
        self._shown.show(self._model)

    def _make(self) -> PartialReduce:
        return self._comm.partial_reduce(self._shown.values, **self._arguments)

    def _sum(self, deadline: Deadline) -> Array:
        return self._model + self._shown.change()


class ParameterServer(WithMean[Server]):
    """A parameter server (Zhao et al. 2021): ranks push updates, and pull what the model has become.

    The server adds the updates of one round, as the synchronization says, divided by their number.
    """

    waits = Waits.DATA
    topology = None
    options = ("sync", "servers")

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse a synchronization in which ranks push models."""
        sync = options.get("sync", "bsp")
        if isinstance(checked_sync(sync), EAMSGD):
            raise ValueError(f"sync: expected one in which gradients are pushed, got {sync!r}")

    def join(self) -> None:
        """Give the servers the model that all ranks have."""
        self.averaging = self._comm.parameter_server(
            self._shown.values,
            update=SGD(rate=1.0),
            workers=range(self._comm.size),
            nan="accept",
            **self._arguments,
        )
        self._model: Array = self._shown.values.copy()
        self._pushed = False
        self._flushed = False
        self._met = False  # all ranks have flushed

    def after_update(self, deadline: Deadline) -> None:
        """Push what the update has changed, which the server subtracts, and show the model when this rank may go on."""
        if not self._pushed:
            self._push(deadline)
        self._pull(deadline)
        self._pushed = False

    def start_flush(self) -> None:
        """Nothing: it takes an answer of the servers."""

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Push what the program has changed, suspend this rank, and show the newest model."""
        if self._flushed:
            return
        if not self._pushed and self._shown.change().any():
            self._push(deadline)
        self.averaging.suspend(timeout=deadline.remaining())  # no other rank waits for it
        self.averaging.flush(timeout=deadline.remaining())
        self._pull(deadline)
        self._pushed, self._flushed = False, True

    def end_flush(self, rejoin: bool) -> None:
        """Note that it is over."""
        self._flushed = False

    def equalize(self, deadline: Deadline) -> None:
        """Show the model that all updates of all ranks have made; the mean, should some pull a newer one."""
        if not self._met:
            self._mean(self._shown.values, deadline)
            self._met = True
        self._pull(deadline)
        self._shown.show(self._mean(self._shown.values, deadline))
        self._met = False

    def _push(self, deadline: Deadline) -> None:
        clock = self.averaging.clock
        try:
            self.averaging.push(np.negative(self._shown.change()), timeout=deadline.remaining())
        finally:
            self._pushed = self.averaging.clock > clock

    def _pull(self, deadline: Deadline) -> None:
        self.averaging.pull(self._model, timeout=deadline.remaining())
        self._shown.show(self._model)


EXCHANGES: dict[str, type[Exchange[Any]]] = {
    "ad-psgd": AdPsgd,
    "a2cid2": A2cid2,
    "d-psgd": DPsgd,
    "sgp": Sgp,
    "hop": Hop,
    "p-reduce": PReduce,
    "parameter-server": ParameterServer,
}
"""By the names that `DecentralizedOptimizer` takes."""
