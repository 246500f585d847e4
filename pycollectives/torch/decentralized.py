"""Decentralized SGD for PyTorch: an optimizer whose parameters are averaged with neighbors in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import torch

from ..support.deadline import Deadline
from ..support.errors import ClosedError
from ..support.validation import checked_choice
from ..topology.arguments import checked_topology, described
from .exchanges import EXCHANGES
from .optimizer import CollectiveOptimizer
from .parameters import parameters_of
from .shown import ShownParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mpi4py import MPI

    from ..communicator import Communicator
    from ..context import AnyCollective
    from ..topology.graph import Topology
    from ..topology.time_varying import TimeVarying
    from .deadlock_guard import Waits
    from .exchanges import Averaging, Exchange

__all__ = ["DecentralizedOptimizer"]


class DecentralizedOptimizer(CollectiveOptimizer):
    """Any `torch.optim.Optimizer`, whose parameters are averaged with those of neighbors, while gradients stay local.

    `step()` lets the wrapped optimizer step with this rank's own gradients, and hands what that has changed over to the
    method. Then the parameters are those at which the next gradient is to be computed. Moments, such as momentum and
    Adam's, stay each rank's own.

    ==================  ==============================================================================================
    method              what a step does, and for whom it waits
    ==================  ==============================================================================================
    "ad-psgd"           The update is added to whatever this rank's model has become: it is averaged with one neighbor
                        at a time in the background. Waits for no rank (Lian et al. 2018).
    "a2cid2"            The same with momentum between averages, for graphs in which they spread slowly (Nabli et al.
                        2023).
    "d-psgd"            The update is added to the average with the neighbors' models, which travel while gradients are
                        computed. Waits for neighbors (Lian et al. 2017).
    "sgp"               Shares of the updated model go to out-neighbors; parameters are de-biased. Waits for
                        in-neighbors, with `overlap=1` for their step before (Assran et al. 2019).
    "hop"               The update is added to the average with the neighbors' models, which may be some iterations
                        apart. Waits as its mode says (Luo et al. 2019).
    "p-reduce"          The updated model is averaged in a group that a generator forms. Waits for its members (Luo et
                        al. 2020).
    "parameter-server"  The update is added to the model of the servers, and this rank receives the new model. Waits as
                        its synchronization defines (Zhao et al. 2021).
    ==================  ==============================================================================================

    Made and closed by all ranks. Ranks may make different numbers of steps. As a context manager it is flushed and
    closed at the end (collective); if the block raises, it is closed at once, and neighbors go on without this rank.

    Under "d-psgd", "sgp", "hop" and "p-reduce" a flush gives all ranks the mean of their parameters, under
    "parameter-server" the newest model that the servers have; under "ad-psgd" and "a2cid2" it does nothing. `finish`
    gives all ranks the same model under all.

    Parameters
    ----------
    optimizer
        Anything but LBFGS. Its parameters are in host memory or on one CUDA device, and stay the same ones. From a
        device they are staged through pinned memory of the host in each step.
    comm
        A `Communicator`, or an mpi4py communicator, for which one is made and closed with this optimizer.
    method
        See above.
    topology
        Who averages with whom: a graph of `pycollectives.topology`, or its name. None: "bipartite-exponential" for
        "ad-psgd" and "a2cid2", "ring" for "d-psgd", "one-peer-exponential" for "sgp", "ring-based" for "hop". The
        other methods have none.
    model
        Whose buffers, such as running statistics, and other parameters are broadcast too, and whose buffers `finish`
        averages. None: there are none, or they stay each rank's own.
    broadcast
        Give all ranks the parameters of rank 0 at first.
    broadcast_state
        Give them rank 0's buffers of `model` too, and the state and hyperparameters of the wrapped optimizer. None: as
        `broadcast`.
    timeout
        Seconds for each step, flush and synchronization. None: the communicator's default.
    name
        In messages and traces.
    options
        Of the method: for "ad-psgd" and "a2cid2" `pace`, `rate`, `order`, `seed` and `weighting`, as of
        `Communicator.pairwise_averaging`; for "d-psgd" `weights`, as of `Communicator.neighbor_averaging`; for "sgp"
        `overlap` and `weights`, as of `Communicator.push_sum`; for "hop" `mode`, `skip`, `max_ig` and `computation`, as
        of `Communicator.hop`; for "p-reduce" `groups`, `weighting` and `coordinator_rank`, as of
        `Communicator.partial_reduce`; for "parameter-server" `sync` and `servers`, as of
        `Communicator.parameter_server`.

    Raises
    ------
    TypeError, ValueError
        An argument or a parameter is refused: on this rank. The others raise `MismatchError`.
    MismatchError
        Arguments, or shapes, dtypes or order of parameters differ between ranks.

    >>> import torch, pycollectives as pc
    >>> from mpi4py import MPI
    >>> from pycollectives.torch import DecentralizedOptimizer
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> inner = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> with DecentralizedOptimizer(inner, MPI.COMM_SELF, "ad-psgd") as optimizer:
    ...     optimizer.zero_grad()
    ...     model(torch.ones(2)).sum().backward()
    ...     optimizer.step()
    >>> model.weight.tolist()
    [[-0.5, -0.5]]
    """

    _step_supports_amp_scaling = False  # a GradScaler is to unscale `.grad` itself
    _discards = False  # a model needs no contribution to be delivered later
    _flush_waits_for_all = False  # only neighbors, if any

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        method: str = "ad-psgd",
        *,
        topology: Topology | TimeVarying | str | None = None,
        model: torch.nn.Module | None = None,
        broadcast: bool = True,
        broadcast_state: bool | None = None,
        timeout: float | None = None,
        name: str = "DecentralizedOptimizer",
        **options: Any,
    ) -> None:
        """See the class."""
        super().__init__(
            optimizer,
            comm,
            model=model,
            broadcast=broadcast,
            broadcast_state=broadcast_state,
            timeout=timeout,
            name=name,
        )
        self._method = method
        self._options = options
        self._topology: dict[str, Topology | TimeVarying] = {}
        self._updated: tuple[float | None] | None = None  # the loss of a step whose update is not handed over yet
        self._is_flushing = False
        self._ending = False
        with self._creation():
            every = self._begin(lambda: self._checked_arguments(topology))
            parameters = [parameter for parameter in every if parameter.requires_grad]
            self._with_exchange = set(map(id, parameters))
            self._memory: Literal["host", "staged"] = "staged" if parameters[0].is_cuda else "host"
            self._exchange: Exchange[Any] = EXCHANGES[method](
                self._comm, ShownParameters(parameters), name=f"{name} {method}", **self._topology, **options
            )

    def _checked_arguments(
        self, topology: Topology | TimeVarying | str | None
    ) -> tuple[Mapping[str, str | int | None], Waits]:
        kind = EXCHANGES[checked_choice("method", self._method, tuple(EXCHANGES))]
        for option in sorted(self._options.keys() - set(kind.options)):
            known = ", ".join(kind.options)
            raise TypeError(f"{option}: unknown option of method {self._method!r}; expected some of {known}")
        kind.check(**self._options)
        if kind.topology is not None:
            chosen = checked_topology(kind.topology if topology is None else topology, self._comm.size)
            self._topology = {"topology": chosen}
        elif topology is not None:
            raise TypeError(f"topology: method {self._method!r} has none")
        compared = {what: described(chosen) for what, chosen in self._topology.items()}
        return {"method": self._method, **compared}, kind.waits

    @property
    def memory(self) -> Literal["host", "staged"]:
        """What the method works on: parameters in memory of the "host", or copies of them there, "staged"."""
        return self._memory

    @property
    def averaging(self) -> Averaging:
        """The collective that the method stands on, for its `statistics()`, `topology` or `weight`.

        Under "d-psgd", "sgp", "hop" and "p-reduce" it is another one after a flush.
        """
        averaging: Averaging = self._exchange.averaging
        return averaging

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Let the wrapped optimizer step with this rank's gradients, and exchange parameters as the method says.

        What the program itself has changed in the parameters since the last step, such as by clamping them, counts as
        part of the update.

        Parameters
        ----------
        closure
            Evaluates the model and returns the loss, as for the wrapped optimizer. Under "d-psgd" the average is waited
            for first, so that it does not travel while the closure computes. A step that is called again after an error
            does not run it again once the wrapped optimizer has stepped.

        Raises
        ------
        RuntimeError
            A parameter requires gradients that did not when this optimizer was made; a flush ran into its time limit.
        ValueError
            The model was given to `DistributedDataParallel` after this optimizer was made.
        StallError, RankFailedError
            Not done in time, or ranks have died. Call it again: it continues where it was. Under "p-reduce" it
            cannot continue: `abort` it.
        ClosedError
            This rank has left.
        """
        self._check_can_step()
        deadline = Deadline(self._timeout)
        if self._updated is None:
            with torch.profiler.record_function("pycollectives: exchange before the update"):
                self._exchange.before_update(deadline)
            loss: float | None = self.optimizer.step() if closure is None else self.optimizer.step(closure)
            self._updated = (loss,)
        with torch.profiler.record_function("pycollectives: exchange after the update"):
            self._exchange.after_update(deadline)
        (loss,), self._updated = self._updated, None
        return loss

    def _check_can_step(self) -> None:
        self._check_open()
        if self._ending:
            raise ClosedError(f"{self._name}: finish or close has begun, and ran into an error: call it again")
        if self._is_flushing:
            raise RuntimeError("a flush ran into its time limit: call flush() again before the next step")
        self._look_for_ddp()
        for parameter in parameters_of(self.optimizer.param_groups):
            if parameter.requires_grad and id(parameter) not in self._with_exchange:
                raise RuntimeError(
                    f"parameter {self._name_of(parameter)} requires gradients, and did not, or was not "
                    f"there, when {self._name} was made: finish() it, and make another one, on all ranks"
                )

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Refuse: the parameters that are exchanged stay the same ones."""
        raise RuntimeError(
            f"add_param_group: {self._name} exchanges the parameters that it was made with: finish() it, add the group "
            "to the wrapped optimizer, and make another one, on all ranks"
        )

    # ------------------------------------------------------------------------------------------------ all ranks

    def finish(self, *, timeout: float | None = None) -> None:
        """Give every rank the mean of all ranks' parameters, and leave for good; collective.

        At the end of a training, before evaluation: ranks may have made different numbers of steps, and end with the
        same parameters, and with the same buffers (see `average_buffers`) if a model was given.

        Parameters
        ----------
        timeout
            Seconds; None for this optimizer's, `math.inf` for no limit.

        Raises
        ------
        RuntimeError
            A step ran into its time limit, and was not called again.
        StallError, ClosedError
            As `synchronize_parameters`.
        """
        if not self._finishing:
            self._check_between_steps("finish")
        self._ending = True
        super().finish(timeout=timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """See `CollectiveOptimizer.close`."""
        if not self.closed:
            self._check_between_steps("close")
            self._ending = True
        super().close(timeout=timeout)

    def _check_no_step_under_way(self, call: str) -> None:
        if self._updated is not None:
            raise RuntimeError(f"{call}: a step of {self._name} ended by an error: call step() again before")

    @property
    def _flushing(self) -> bool:
        return self._is_flushing

    def _start_flush(self) -> None:
        self._is_flushing = True
        self._exchange.start_flush()

    def _wait_for_flush(self, deadline: Deadline) -> None:
        self._exchange.wait_for_flush(deadline)

    def _end_flush(self) -> None:
        self._exchange.end_flush(rejoin=not self._ending)
        self._is_flushing = False

    def _average_parameters(self, deadline: Deadline) -> None:
        self._exchange.equalize(deadline)

    def _end_step(self) -> None:
        """Nothing: no step prepares another one."""

    def _leave(self) -> None:
        self._exchange.leave()

    def _collectives(self) -> Sequence[AnyCollective]:
        return self._exchange.collectives

    def _leave_at_once(self) -> int:
        exchange: Exchange[Any] | None = getattr(self, "_exchange", None)  # None: it could not be made
        return 0 if exchange is None else exchange.abort()

    def __repr__(self) -> str:
        """Show the wrapped optimizer and the method."""
        memory = ", staged through the host" if self._memory == "staged" else ""
        topology = "".join(f", {chosen!r}" for chosen in self._topology.values())
        state = f"{memory}{', closed' if self.closed else ''}"
        return f"DecentralizedOptimizer({self.optimizer!r}, {self._method!r}{topology}{state})"
