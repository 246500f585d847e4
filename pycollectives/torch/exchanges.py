"""The exchange of parameters: one class for each method of a `DecentralizedOptimizer`, and a table of the classes.

A class defines the exchange before and after the local update (`before_update`, `after_update`). After an error, both
methods can be called again to continue, unless the class rules that out.
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
    from ..neighbor_averaging.neighborhood import StepRequest
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .shown import ShownParameters

Averaging = PairwiseAveraging | NeighborAveraging | PushSum | HopCollective | PartialReduce | Server
AveragingT = TypeVar("AveragingT", bound=Averaging)
StepwiseT = TypeVar("StepwiseT", bound=NeighborAveraging | PushSum | HopCollective | PartialReduce)

NO_END = 1 << 40
"""An unlimited number of iterations: the training loop decides when to stop."""


class Exchange(ABC, Generic[AveragingT]):
    """One rank's part in a decentralized method; creation is collective.

    A rank that replaces a dead one joins the survivors' collective in `restore`, with a survivor's parameters. Its
    first exchange begins in its first step.
    """

    service: ClassVar[str]
    """The call of the communicator that makes the collective."""

    waits: ClassVar[Waits]
    topology: ClassVar[str | None]
    """The default topology; None if the method has no topology."""

    options: ClassVar[tuple[str, ...]]
    """The options of the collective that the method accepts."""

    averaging: AveragingT  # does the work; under some methods a flush replaces it
    is_in = False  # this rank has joined it: not yet if it replaces a dead one while the survivors flush
    settled = False  # the flush that is under way has shown the settled model

    def __init__(self, comm: Communicator, shown: ShownParameters, name: str, **options: Any) -> None:
        self._comm = comm
        self._shown = shown
        self._arguments = {"name": name, **options}
        membership = comm._context.membership
        if membership is None or not membership.is_joining:
            self.join()
            self.begin()

    @classmethod
    def check(cls, **options: Any) -> None:
        """Raise ValueError for an option value that the collective accepts but this method does not."""

    def join(self) -> None:
        self.averaging = getattr(self._comm, self.service)(self._shown.values, **self._arguments)
        self.is_in = True

    def begin(self, timeout: float | None = None) -> None:
        """Begin the first exchange, unless it has begun."""

    def state(self) -> dict[str, Any]:
        """Return the state, besides the parameters, for a rank that replaces a dead one."""
        return {"settled": self.settled}

    def restore(self, state: dict[str, Any]) -> None:
        """Load a survivor's state and parameters, and join the survivors' collective if it is open; collective."""
        self.settled = state["settled"]
        self._shown.take_change()
        membership = self._comm._context.membership
        assert membership is not None
        membership.make_if_open(self.service, self._arguments["name"], self.join)

    def before_update(self, deadline: Deadline) -> None:
        """Prepare for the local update."""

    @abstractmethod
    def after_update(self, deadline: Deadline) -> None:
        """Contribute the update, and write the model for the next gradient to the parameters."""

    def start_flush(self) -> None:
        """Leave the collective without waiting, so that no rank waits for this one. A second call does nothing."""

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Deliver all pending data; collective."""

    def end_flush(self, rejoin: bool) -> None:
        """Write the resulting model to the parameters; rejoin if `rejoin` is True. Collective."""

    @abstractmethod
    def equalize(self, deadline: Deadline) -> None:
        """Set the parameters to the mean of all ranks' models, after a flush; collective."""

    def leave(self) -> None:
        if self.is_in:
            self.averaging.leave()

    def abort(self) -> int:
        """Leave the collective at once; return the number of discarded contributions."""
        return self.averaging.abort() if self.is_in else 0

    @property
    def collectives(self) -> list[AnyCollective]:
        """The collectives that the method uses."""
        return [self.averaging] if self.is_in else []


class AdPsgd(Exchange[PairwiseAveraging]):
    """AD-PSGD (Lian et al. 2018, Algorithm 1): adds the update, computed at an older model x', to the current model."""

    service = "pairwise_averaging"
    waits = Waits.NEVER
    topology = "bipartite-exponential"
    options = ("pace", "rate", "order", "seed", "weighting")

    def join(self) -> None:
        """Create the model that is averaged with neighbors."""
        super().join()
        self._model = np.empty_like(self._shown.values)

    def after_update(self, deadline: Deadline) -> None:
        """Add the update, and write the current model to the parameters, as x' of the next step."""
        self._apply()
        self._shown.show(self.averaging.read(self._model))

    def equalize(self, deadline: Deadline) -> None:
        """Write the mean, which the collective computes, to the parameters."""
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
    """A method that uses a second collective to compute the mean of all models."""

    def __init__(self, comm: Communicator, shown: ShownParameters, name: str, **options: Any) -> None:
        self._mean = ExactMean(comm, np.resize(shown.values, self._count_of_mean(comm, shown)), f"{name}.mean")
        super().__init__(comm, shown, name, **options)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "mean": self._mean.computed}

    def restore(self, state: dict[str, Any]) -> None:
        self._mean.computed = state["mean"]
        super().restore(state)

    @staticmethod
    def _count_of_mean(comm: Communicator, shown: ShownParameters) -> int:
        """Return the number of elements that each rank contributes to the mean."""
        del comm
        return shown.values.size

    def leave(self) -> None:
        try:
            super().leave()
        finally:
            self._mean.leave()

    def abort(self) -> int:
        try:
            self._mean.abort()
        finally:
            discarded = super().abort()
        return discarded

    @property
    def collectives(self) -> list[AnyCollective]:
        return [*super().collectives, self._mean.rounds]


class Stepwise(WithMean[StepwiseT]):
    """A method whose ranks average in steps and wait for each other's models.

    In a flush, each rank leaves the collective, so that ranks with more steps continue without it. All ranks then
    compute the mean of all models and create a new collective.
    """

    waits = Waits.DATA
    _model: Array  # before it is rounded to be shown
    _step: StepRequest | None = None  # the newest in this collective, if its steps have requests
    _settled: Array | None = None  # this rank's part of the mean, between two calls of `wait_for_flush`

    def start_flush(self) -> None:
        """Leave the collective: the neighbors continue without this rank."""
        if self.is_in and not self.settled:
            self.averaging.leave()

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Receive the models in flight, and compute the mean over ranks."""
        if self.settled:
            return
        if self._settled is None:
            self._settled = self._sum(deadline)
        self._shown.show(self._model_of(self._mean(self._settled, deadline)))
        self._settled = None
        self.settled = True

    def end_flush(self, rejoin: bool) -> None:
        """Rejoin if `rejoin` is True; the parameters already hold the mean."""
        if rejoin:
            if not self.is_in or self.averaging.closed:
                self.join()
            self.begin()
            self.settled = False

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._model = self._shown.values.copy()

    def equalize(self, deadline: Deadline) -> None:
        """Do nothing: models are equal after a flush."""

    def join(self) -> None:
        super().join()
        self._model = self._shown.values.copy()
        self._step = None

    @abstractmethod
    def _sum(self, deadline: Deadline) -> Array:
        """Return this rank's contribution to the mean, after this rank has left the collective."""

    def _model_of(self, mean: Array) -> Array:
        """Turn the mean of all ranks' contributions into a model."""
        return mean


class DPsgd(Stepwise[NeighborAveraging]):
    """D-PSGD (Lian et al. 2017, Algorithm 1): models are averaged while ranks compute gradients at them."""

    service = "neighbor_averaging"
    topology = "ring"
    options = ("weights",)
    _arrived: bool  # the average of the started step is here

    def begin(self, timeout: float | None = None) -> None:
        """Send the neighbors the first model."""
        del timeout
        if self._step is None:
            self._start()

    def before_update(self, deadline: Deadline) -> None:
        """Wait for the average of the models. The gradient was computed at this rank's model before averaging."""
        self.begin()
        assert self._step is not None
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

    def _sum(self, deadline: Deadline) -> Array:
        last = self._model if self._step is None else self.averaging.final(timeout=deadline.remaining())
        return last + self._shown.change()


class Sgp(Stepwise[PushSum]):
    """SGP (Assran et al. 2019, Algorithms 1 and 2): parameters are de-biased, x / weight; updates are added to x."""

    service = "push_sum"
    topology = "one-peer-exponential"
    options = ("overlap", "weights")
    _started = False  # a step has begun, but not ended

    def after_update(self, deadline: Deadline) -> None:
        """Send shares of x, add the shares that have arrived, and write the de-biased model to the parameters."""
        if not self._started:
            self._step = self.averaging.start(self._model + self._shown.change())
            self._started = True
        assert self._step is not None
        self._step.wait(out=self._model, timeout=deadline.remaining())
        self._started = False
        self._shown.show(self._model)

    def _sum(self, deadline: Deadline) -> Array:
        change = self._shown.change()
        model, weight = self._model, 1.0
        if self._step is not None:
            model = self.averaging.final(timeout=deadline.remaining())
            weight = self.averaging.weight
        term = model * weight + change
        return term if term.size == self._mean.count else np.append(term, term.dtype.type(weight))

    @staticmethod
    def _count_of_mean(comm: Communicator, shown: ShownParameters) -> int:
        """Return the model's size, plus 1 for the weight if ranks may die: survivors' weights may not average to 1."""
        return shown.values.size + (comm.on_failure == "continue")

    def _model_of(self, mean: Array) -> Array:
        size = self._model.size
        return mean if mean.size == size else mean[:size] / mean[size]


class Hop(Stepwise[HopCollective]):
    """Hop (Luo et al. 2019, Fig. 4): a rank averages models with its neighbors, which may be some iterations apart."""

    service = "hop"
    topology = "ring-based"
    options = ("mode", "skip", "max_ig", "computation")
    _stepped = True  # the iteration has ended, and the next has not begun

    def join(self) -> None:
        """Join, and write the collective's model to the parameters: on a replacement rank, a survivor's model."""
        super().join()
        self._stepped = True
        self._shown.show(self.averaging.parameters)

    def begin(self, timeout: float | None = None) -> None:
        """Send the neighbors the first model."""
        if self._stepped:
            self._enter(timeout)

    def before_update(self, deadline: Deadline) -> None:
        """On a rank that replaces a dead one, begin its first iteration."""
        self.begin(deadline.remaining())

    def after_update(self, deadline: Deadline) -> None:
        """Add the update to the average, begin the next iteration, and write its model to the parameters."""
        if not self._stepped:
            self.averaging.step(self._shown.change(), timeout=deadline.remaining())
            self._stepped = True
        self._enter(deadline.remaining())

    def _enter(self, timeout: float | None) -> None:
        next(self.averaging.iterations(NO_END, timeout=timeout))
        self._stepped = False
        self._shown.show(self.averaging.parameters)

    def _sum(self, deadline: Deadline) -> Array:
        changed = self._shown.change()
        model = self.averaging.parameters if self.is_in else self._model
        return model if self._stepped else model + changed


class PReduce(Stepwise[PartialReduce]):
    """P-Reduce (Luo et al. 2020, section 3): the updated model is averaged in a group that a generator forms."""

    service = "partial_reduce"
    topology = None
    options = ("groups", "weighting", "coordinator_rank")

    def after_update(self, deadline: Deadline) -> None:
        """Average the updated model with this rank's next group. After an error, a second call cannot continue."""
        self._model += self._shown.change()
        self._shown.take_change()
        self.averaging.average(self._model, timeout=deadline.remaining())
        self._shown.show(self._model)

    def _sum(self, deadline: Deadline) -> Array:
        return self._model + self._shown.change()


class ParameterServer(WithMean[Server]):
    """A parameter server (Zhao et al. 2021): ranks push updates and pull the new model.

    The server adds the mean of the updates of one round. The option `sync` defines the rounds.
    """

    service = "parameter_server"
    waits = Waits.DATA
    topology = None
    options = ("sync", "servers")

    @classmethod
    def check(cls, **options: Any) -> None:
        """Raise ValueError for a `sync` in which ranks push models instead of gradients."""
        sync = options.get("sync", "bsp")
        if isinstance(checked_sync(sync), EAMSGD):
            raise ValueError(f"sync: expected a synchronization in which ranks push gradients, got {sync!r}")

    def join(self) -> None:
        """Create the servers with the common model."""
        self._arguments |= {"update": SGD(rate=1.0), "workers": range(self._comm.size), "nan": "accept"}
        super().join()
        self._model: Array = self._shown.values.copy()
        self._pushed = False
        self._flushed = False

    def after_update(self, deadline: Deadline) -> None:
        """Push the negated change, which the server subtracts. Wait, then write the new model to the parameters."""
        if not self._pushed:
            self._push(deadline)
        self._pull(deadline)
        self._pushed = False

    def start_flush(self) -> None:
        """Do nothing: this rank must wait for the servers before it can leave the round."""

    def wait_for_flush(self, deadline: Deadline) -> None:
        """Push pending changes, suspend this rank, and write the newest model to the parameters."""
        if self._flushed:
            return
        if not self._pushed and self._shown.change().any():
            self._push(deadline)
        self.averaging.suspend(timeout=deadline.remaining())  # no other rank waits for it
        self.averaging.flush(timeout=deadline.remaining())
        self._pull(deadline)
        self._pushed, self._flushed = False, True

    def end_flush(self, rejoin: bool) -> None:
        self._flushed = False

    def equalize(self, deadline: Deadline) -> None:
        """Set the parameters to the model with all updates, averaged in case some ranks pull a newer model."""
        if not self.settled:
            self._mean(self._shown.values, deadline)
            self.settled = True  # all ranks have flushed
        self._pull(deadline)
        self._shown.show(self._mean(self._shown.values, deadline))
        self.settled = False

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
"""The classes by the method names that `DecentralizedOptimizer` accepts."""
