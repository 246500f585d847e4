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
    from torch.optim.lr_scheduler import LRScheduler

    from ..communicator import Communicator
    from ..context import AnyCollective
    from ..support.step_timer import StepTimer
    from ..topology.graph import Topology
    from ..topology.time_varying import TimeVarying
    from .deadlock_guard import Waits
    from .exchanges import Averaging, Exchange


class DecentralizedOptimizer(CollectiveOptimizer):
    """Wrap a `torch.optim.Optimizer` so that it averages parameters with neighbors; gradients stay local.

    `step()` steps the wrapped optimizer with this rank's own gradients, and passes the change in the parameters to the
    method. Afterwards the parameters are the model at which the next gradient is computed. Optimizer state, such as
    momentum and Adam's moments, stays local.

    ==================  ==============================================================================================
    method              effect of a step, and the ranks it waits for
    ==================  ==============================================================================================
    "ad-psgd"           Adds the update to this rank's model, which is averaged with one neighbor at a time in the
                        background. Waits for no rank (Lian et al. 2018).
    "a2cid2"            The same with momentum between averages, for graphs in which averages spread slowly (Nabli et
                        al. 2023).
    "d-psgd"            Adds the update to the average with the neighbors' models, which travel while gradients are
                        computed. Waits for neighbors (Lian et al. 2017).
    "sgp"               Sends shares of the updated model to out-neighbors and de-biases the parameters. Waits for
                        in-neighbors, with `overlap=1` for their previous step (Assran et al. 2019).
    "hop"               Adds the update to the average with the neighbors' models, which may be some iterations apart.
                        Waits as its mode requires (Luo et al. 2019).
    "p-reduce"          Averages the updated model in a group that a generator forms. Waits for the members of the group
                        (Luo et al. 2020).
    "parameter-server"  Adds the update to the model of the servers and receives the new model. Waits as its
                        synchronization requires (Zhao et al. 2021).
    ==================  ==============================================================================================

    All ranks create and close the optimizer together. They may make different numbers of steps. Used as a context
    manager, it flushes and closes at the end (collective). If the block raises, it closes at once, and the neighbors
    continue without this rank.

    A flush sets the parameters of all ranks to their mean under "d-psgd", "sgp", "hop" and "p-reduce", and to the
    servers' newest model under "parameter-server". It does nothing under "ad-psgd" and "a2cid2". `finish` gives all
    ranks the same model under every method.

    Parameters
    ----------
    optimizer
        Any optimizer except LBFGS. Its parameters are in host memory or on one CUDA device; the set of parameters is
        fixed. Parameters on a device are staged through pinned host memory in each step.
    comm
        A `Communicator`, or an mpi4py communicator. From the latter, this optimizer creates a `Communicator`, which it
        also closes. With spares or respawn, a rank that replaces a dead one gets parameters, buffers and state from a
        survivor.
    method
        One of the methods in the table.
    topology
        Which ranks average with each other: a graph of `pycollectives.topology`, or its name. None:
        "bipartite-exponential" for "ad-psgd" and "a2cid2", "ring" for "d-psgd", "one-peer-exponential" for "sgp",
        "ring-based" for "hop". The other methods have no topology.
    model, schedulers, broadcast, broadcast_state, timeout, step_timer, name
        As for `EagerOptimizer`.
    options
        Options of the method: for "ad-psgd" and "a2cid2" `pace`, `rate`, `order`, `seed` and `weighting`, as in
        `Communicator.pairwise_averaging`; for "d-psgd" `weights`, as in `Communicator.neighbor_averaging`; for "sgp"
        `overlap` and `weights`, as in `Communicator.push_sum`; for "hop" `mode`, `skip`, `max_ig` and `computation`, as
        in `Communicator.hop`; for "p-reduce" `groups`, `weighting` and `coordinator_rank`, as in
        `Communicator.partial_reduce`; for "parameter-server" `sync` and `servers`, as in
        `Communicator.parameter_server`.

    Raises
    ------
    TypeError, ValueError
        An argument or a parameter is invalid on this rank. The other ranks raise `MismatchError`.
    MismatchError
        The arguments, or the shapes, dtypes or order of the parameters, differ between ranks.

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

    _step_supports_amp_scaling = False  # a GradScaler must unscale `.grad` itself
    _discards = False  # a model has no contributions that could be lost
    _flush_waits_for_all = False  # only neighbors, if any

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        method: str = "ad-psgd",
        *,
        topology: Topology | TimeVarying | str | None = None,
        model: torch.nn.Module | None = None,
        schedulers: Sequence[LRScheduler] = (),
        broadcast: bool = True,
        broadcast_state: bool | None = None,
        timeout: float | None = None,
        step_timer: StepTimer | None = None,
        name: str = "DecentralizedOptimizer",
        **options: Any,
    ) -> None:
        super().__init__(
            optimizer,
            comm,
            model=model,
            schedulers=schedulers,
            broadcast=broadcast,
            broadcast_state=broadcast_state,
            timeout=timeout,
            step_timer=step_timer,
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
            raise TypeError(f"{option}: unknown option of method {self._method!r}; expected {known}")
        kind.check(**self._options)
        if kind.topology is not None:
            chosen = checked_topology(kind.topology if topology is None else topology, self._comm.size)
            self._topology = {"topology": chosen}
        elif topology is not None:
            raise TypeError(f"topology: expected None, since method {self._method!r} has no topology, got {topology!r}")
        compared = {what: described(chosen) for what, chosen in self._topology.items()}
        return {"method": self._method, **compared}, kind.waits

    @property
    def memory(self) -> Literal["host", "staged"]:
        """The memory that the method uses: "host", or "staged" if parameters are copied from a device to the host."""
        return self._memory

    @property
    def averaging(self) -> Averaging:
        """The collective that the method uses, for its `statistics()`, `topology` or `weight`.

        Under "d-psgd", "sgp", "hop" and "p-reduce" a flush replaces the collective.
        """
        if not self._exchange.is_in:
            raise RuntimeError(
                "averaging: this rank replaces a dead rank and has not joined the collective yet; call flush() first, "
                "as the surviving ranks do"
            )
        averaging: Averaging = self._exchange.averaging
        return averaging

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take a step of the wrapped optimizer with this rank's gradients, then exchange parameters.

        Changes that the program itself made to the parameters since the last step, such as clamping, count as part of
        the update.

        Parameters
        ----------
        closure
            Function that evaluates the model and returns the loss, as for the wrapped optimizer. Under "d-psgd" `step`
            waits for the average first, so that communication does not overlap the closure. If `step` is called again
            after an error, the closure does not run again once the wrapped optimizer has stepped.

        Returns
        -------
        float or None
            The loss that the closure returned; None without a closure.

        Raises
        ------
        RuntimeError
            A parameter requires gradients, but did not when this optimizer was made; a flush reached its time limit and
            was not repeated; or this rank replaces a dead rank while the survivors are in another call.
        ValueError
            The model was passed to `DistributedDataParallel` after this optimizer was made.
        StallError, RankFailedError
            The time limit was reached, or ranks have died. Call again to continue. Under "p-reduce" the step cannot
            continue, except after a death with `on_failure="continue"`: call `abort`.
        ClosedError
            This rank has left.
        """
        self._check_can_step()
        deadline = Deadline(self._timeout)
        if self._updated is None:
            with self._times.waiting(), torch.profiler.record_function("pycollectives: exchange before the update"):
                self._exchange.before_update(deadline)
            loss: float | None = self.optimizer.step() if closure is None else self.optimizer.step(closure)
            self._updated = (loss,)
        with self._times.waiting(), torch.profiler.record_function("pycollectives: exchange after the update"):
            self._exchange.after_update(deadline)
        self._times.end_step()
        (loss,), self._updated = self._updated, None
        return loss

    def _check_can_step(self) -> None:
        self._check_open()
        if self._ending:
            raise ClosedError(f"{self._name}: finish() or close() ended with an error: call that method again")
        if self._is_flushing:
            raise RuntimeError("a flush reached its time limit: call flush() again before the next step")
        self._operations.check("step")
        if not self._exchange.is_in or self._exchange.settled:
            raise RuntimeError("step: the surviving ranks are in flush() after a death: call flush() first")
        self._look_for_ddp()
        for parameter in parameters_of(self.optimizer.param_groups):
            if parameter.requires_grad and id(parameter) not in self._with_exchange:
                raise RuntimeError(
                    f"parameter {self._name_of(parameter)} requires gradients, but did not, or did not "
                    f"exist, when {self._name} was made: finish() it, and make another optimizer, on all ranks"
                )

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Raise `RuntimeError`: the set of exchanged parameters is fixed."""
        raise RuntimeError(
            f"add_param_group: {self._name} exchanges only the parameters that it was made with: finish() it, add the "
            "group to the wrapped optimizer, and make another optimizer, on all ranks"
        )

    # ------------------------------------------------------------------------------------------------ all ranks

    def finish(self, *, timeout: float | None = None) -> None:
        """Set the parameters of all ranks to their mean, and close; collective.

        Call `finish` at the end of training, before evaluation. Ranks may have made different numbers of steps. They
        end with the same parameters and, if a model was given, the same buffers (see `average_buffers`).

        Parameters
        ----------
        timeout
            As for `flush`.

        Raises
        ------
        RuntimeError
            A step reached its time limit and was not repeated.
        StallError, ClosedError
            As for `synchronize_parameters`.
        """
        if not self._finishing:
            self._check_between_steps("finish")
        self._ending = True
        super().finish(timeout=timeout)

    def close(self, *, timeout: float | None = None) -> None:
        if not self.closed:
            self._check_between_steps("close")
            self._ending = True
        super().close(timeout=timeout)

    def _check_no_step_under_way(self, call: str) -> None:
        if self._updated is not None:
            raise RuntimeError(f"{call}: a step of {self._name} ended with an error: call step() again first")

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

    def _means_of_parameters(self) -> Sequence[Callable[[Deadline], None]]:
        return [self._exchange.equalize]

    def _end_step(self) -> None:
        """Do nothing: a step does not prepare the next step."""

    def _leave(self) -> None:
        self._exchange.leave()

    def _collectives(self) -> Sequence[AnyCollective]:
        return self._exchange.collectives

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), **self._exchange.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._exchange.restore(state)

    def _leave_at_once(self) -> int:
        exchange: Exchange[Any] | None = getattr(self, "_exchange", None)  # None if its creation failed
        return 0 if exchange is None else exchange.abort()

    def __repr__(self) -> str:
        memory = ", staged through the host" if self._memory == "staged" else ""
        topology = "".join(f", {chosen!r}" for chosen in self._topology.values())
        state = f"{memory}{', closed' if self.closed else ''}"
        return f"DecentralizedOptimizer({self.optimizer!r}, {self._method!r}{topology}{state})"
