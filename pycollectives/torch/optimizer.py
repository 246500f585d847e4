"""Base class of the torch optimizers that exchange gradients or parameters with other ranks.

A derived class creates its collectives within `_creation`, after `_begin`, and overrides the methods under "for derived
classes".
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, SupportsFloat

import torch

from ..collective import Statistics
from ..communicator import Communicator
from ..support.deadline import Deadline
from ..support.errors import ClosedError
from ..support.lifecycle import exit_context
from ..support.validation import checked_timeout
from .deadlock_guard import DeadlockGuard, Waits
from .drift import warn_of_running_statistics
from .initial_state import InitialState
from .module_buffers import ModuleBuffers
from .operations import Operations, meet, synchronize
from .parameters import Signature, check_one_device, name_of, parameters_of
from .refusals import check_model, check_no_ddp, check_optimizer, check_schedulers, open_wrappers
from .step_times import StepTimes
from .wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mpi4py import MPI
    from torch.optim.lr_scheduler import LRScheduler
    from typing_extensions import Self

    from ..context import AnyCollective
    from ..support.step_timer import StepTimer
    from ..support.typing import Array, BufferSpec

_deadlock_guard = DeadlockGuard()


class CollectiveOptimizer(WrappedOptimizer, ABC):
    """A wrapped optimizer with a communicator; all ranks create, flush and close it together."""

    _discards: ClassVar[bool] = True
    """Whether leaving at once can discard this rank's contributions, so that it needs a warning."""

    _flush_waits_for_all: ClassVar[bool] = True
    """Whether all ranks have called `flush` when it returns."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        *,
        model: torch.nn.Module | None,
        schedulers: Sequence[LRScheduler] = (),
        broadcast: bool,
        broadcast_state: bool | None,
        timeout: float | None,
        step_timer: StepTimer | None = None,
        name: str,
    ) -> None:
        self.optimizer, self._times = optimizer, StepTimes(step_timer)
        self._owns_comm = not isinstance(comm, Communicator)
        self._comm = comm if isinstance(comm, Communicator) else Communicator(comm, timeout=timeout)
        self._closed = False
        self._finishing = False  # `finish` still has to close, and nothing else
        self._left = False  # the collectives; its own communicator may still be open
        self._name = name
        self._model = model
        self._operations = Operations()
        self._schedulers = tuple(schedulers)
        of_replicas = (model, self._schedulers, broadcast, broadcast_state)
        self._initial = InitialState(optimizer, self._comm, *of_replicas, type(self).__name__)
        self._timeout = timeout
        self._looked_for_ddp = False
        self._name_of = partial(name_of, optimizer, model=model)

    # ------------------------------------------------------------------------------------------ for derived classes

    @abstractmethod
    def _check_no_step_under_way(self, call: str) -> None:
        """Raise `RuntimeError` if `call` is too early: a step has begun, or its averages are unused."""

    @property
    @abstractmethod
    def _flushing(self) -> bool:
        """Whether a flush has begun (`_start_flush`) and not ended (`_end_flush`)."""

    def _begin_flush(self) -> None:
        """Begin a flush without sending messages. A second call does nothing."""

    @abstractmethod
    def _start_flush(self) -> None:
        """Leave the collectives, so that no rank waits for this one. A second call does nothing."""

    @abstractmethod
    def _wait_for_flush(self, deadline: Deadline) -> None:
        """Deliver all pending data; collective. After a timeout, call it again to continue."""

    @abstractmethod
    def _end_flush(self) -> None:
        """Apply this rank's outstanding results, after all optimizers that flush together have delivered data."""

    @abstractmethod
    def _means_of_parameters(self) -> Sequence[Callable[[Deadline], None]]:
        """Return operations that set the parameters of all ranks to their mean, after a flush; collective."""

    @abstractmethod
    def _end_step(self) -> None:
        """Begin the next step; drop averages that no `step()` has used."""

    @abstractmethod
    def _leave(self) -> None:
        """Leave the collectives, without waiting."""

    @abstractmethod
    def _leave_at_once(self) -> int:
        """Close the collectives without waiting for other ranks; return the number of discarded contributions."""

    @abstractmethod
    def _collectives(self) -> Sequence[AnyCollective]:
        """Return the collectives of this optimizer."""

    # ------------------------------------------------------------------------------------------------ creation

    @contextlib.contextmanager
    def _creation(self) -> Iterator[None]:
        """Limit the time of the creation in the block, then share the state with replacement ranks; abort on error."""
        try:
            with self._within(self._comm._context.deadline_of(self._timeout)) as self._creating:
                yield
            self._initial.share(self._state, self._restore)
        except BaseException:
            self.abort()
            raise

    @contextlib.contextmanager
    def _within(self, deadline: Deadline) -> Iterator[Deadline]:
        """Apply one deadline to everything that the communicator creates or compares in the block."""
        with self._times.waiting(), self._comm._context.rendezvous.within(deadline):
            yield deadline

    def _begin(self, check: Callable[[], tuple[Mapping[str, str | int | None], Waits]]) -> list[torch.Tensor]:
        """Compare the arguments of all ranks, broadcast rank 0's state, and return the parameters; collective.

        `check` checks the derived class's arguments. It returns the arguments that must be equal on all ranks, and when
        calls may wait. A rank that replaces a dead one receives a survivor's state later, by `_restore`.
        """
        if self._initial.comes_later:
            self._checked(check)
        else:
            self._comm.agree(type(self).__name__, lambda: self._checked(check))
        self._timeout = self._comm.timeout if self._timeout is None else self._timeout
        if self._comm.size > 1 and self._comm.rank == 0:
            warn_of_running_statistics(self._name, parameters_of(self.optimizer.param_groups), self._model)
        if self._initial.comes_later:
            return parameters_of(self.optimizer.param_groups)
        return self._initial.take_from_rank_0(self._creating)

    def _checked(self, check: Callable[[], tuple[Mapping[str, str | int | None], Waits]]) -> Signature:
        check_optimizer(self.optimizer)
        check_schedulers(self._schedulers, self.optimizer)
        self._timeout = checked_timeout(self._timeout)
        check_model(self._model)
        options, waits = check()
        parameters = parameters_of(self.optimizer.param_groups)
        if not any(parameter.requires_grad for parameter in parameters):
            raise ValueError("optimizer: expected a parameter that requires gradients, got none")
        signature = self._initial.signature(parameters, self._name_of, options)
        check_one_device(parameters)
        check_no_ddp(parameters)
        self._initial.pack()
        open_wrappers.admit(self)
        if self._comm.size > 1:
            _deadlock_guard.admit(self, waits)
        return signature

    def _state(self) -> dict[str, Any]:
        under_way = self._operations.call, self._operations.completed
        return {**self._initial.provide(), "under_way": under_way, "finishing": self._finishing}

    def _restore(self, state: dict[str, Any]) -> None:
        self._initial.restore(state)
        self._operations.call, self._operations.completed = state["under_way"]
        self._finishing = state["finishing"]

    def _look_for_ddp(self) -> None:
        """Refuse a model that was wrapped in DistributedDataParallel after this optimizer was created."""
        if not self._looked_for_ddp:
            check_no_ddp(parameters_of(self.optimizer.param_groups))
            self._looked_for_ddp = True

    def _checked_groups(self, first_group: int) -> Signature:
        """Check the parameter groups from `first_group` on; return a signature that must be the same on all ranks."""
        parameters = parameters_of(self.optimizer.param_groups[first_group:])
        signature = Signature.of(parameters, self._name_of)
        check_one_device(parameters_of(self.optimizer.param_groups))
        check_no_ddp(parameters)
        self._initial.pack(first_group)
        open_wrappers.admit(self)
        return signature

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self, *, timeout: float | None = None) -> None:
        """Deliver all pending data; collective.

        `timeout` is the limit in seconds, by default this optimizer's; `math.inf` means no limit.
        """
        self._check_between_steps("flush")
        self._flush(self._deadline(timeout))

    def _deadline(self, timeout: float | None) -> Deadline:
        """Return the deadline of a call, from `timeout` or, if that is None, from this optimizer's time limit."""
        return Deadline(self._timeout if timeout is None else checked_timeout(timeout))

    def _flush(self, deadline: Deadline) -> None:
        together = self._flushed_together()
        with self._within(deadline):
            for each in together:
                each._begin_flush()
            for each in together:  # before this rank waits in one, since a rank may need it in another
                each._start_flush()
            for each in together:
                each._wait_for_flush(deadline)
            for each in together:  # last: after a timeout of one, all are flushed again and continue
                each._end_flush()

    def _flushed_together(self) -> list[CollectiveOptimizer]:
        others = [other for other in _deadlock_guard.others_that_wait(self) if other._comm is self._comm]
        return [self, *(other for other in others if other._flushing == self._flushing)]

    def synchronize_parameters(self, *, timeout: float | None = None) -> None:
        """Flush, then set the parameters of all ranks to their mean (eager-SGD, section 5); collective.

        The wrapped optimizer's state, such as momentum, and the model's buffers stay local. `timeout` is the limit in
        seconds, by default this optimizer's; `math.inf` means no limit.

        Raises
        ------
        RuntimeError, StallError
            As for `flush`.
        ClosedError
            This optimizer is closed, or another rank has left.
        """
        self._check_between_steps("synchronize_parameters")
        self._make("synchronize_parameters", self._deadline(timeout), *self._synchronization())

    def _make(self, call: str, deadline: Deadline, *operations: Callable[[Deadline], None]) -> None:
        """Flush, then run operations; collective."""
        with self._times.waiting():
            self._operations.make(call, deadline, self._flush, *operations)

    def _meet(self, call: str, deadline: Deadline) -> None:
        with self._within(deadline):
            meet(self._comm, f"{type(self).__name__}.{call}")

    def _synchronization(self) -> Sequence[Callable[[Deadline], None]]:
        """Return operations that, after a flush, set the parameters of all ranks to their mean; collective."""
        operations = [*self._means_of_parameters()]
        if self._flush_waits_for_all:  # all ranks get here now; if one does not, the communicator is unusable
            operations.insert(0, lambda rest: self._meet("synchronize_parameters", rest.at_least(1.0)))
        return [partial(synchronize, self._name, operation) for operation in operations]

    def average_buffers(self, model: torch.nn.Module | None = None, *, timeout: float | None = None) -> None:
        """Flush, then set the buffers of all ranks, such as running statistics, to their mean; collective.

        Floating-point buffers are averaged. Other buffers, such as batch counts, get rank 0's values. A buffer that is
        equal on all ranks stays the same, bit for bit for types up to float32.

        Parameters
        ----------
        model
            The model with the buffers; by default, the model that was given when this optimizer was created.
        timeout
            As for `flush`.

        Raises
        ------
        ValueError, TypeError
            This rank has no model, or a buffer that is neither in host memory nor on a CUDA device. The other ranks
            raise `MismatchError`.
        MismatchError
            Number, shapes or dtypes of buffers differ between ranks.
        RuntimeError, StallError, ClosedError
            As for `flush`.
        """
        self._check_between_steps("average_buffers")
        self._make("average_buffers", self._deadline(timeout), *self._means_of_buffers(model))

    def _means_of_buffers(self, model: torch.nn.Module | None) -> Sequence[Callable[[Deadline], None]]:
        buffers = ModuleBuffers(self._comm, self._model if model is None else model)

        def agree(deadline: Deadline) -> None:
            with self._within(deadline):
                self._comm.agree(f"{type(self).__name__}.average_buffers", buffers.checked)

        return [agree, buffers.average_floats, *buffers.broadcasts()]

    def average(self, metric: SupportsFloat | BufferSpec, *, timeout: float | None = None) -> float | Array:
        """Flush, then return the mean over ranks of a number or an array, such as a loss; collective.

        All ranks call `average` equally often, between steps; they may have taken different numbers of steps. Python
        evaluates the argument before the flush. Call `flush` first if the metric must include late gradients. The mean
        is the same on all ranks. It is an array if `metric` is an array.

        Parameters
        ----------
        metric
            A number, or an array of the same shape on all ranks, as for `Communicator.mean`.
        timeout
            As for `flush`.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As for `flush`.
        ValueError, TypeError, BufferError, MismatchError
            As for `Communicator.mean`.
        """
        self._check_between_steps("average")
        means: list[float | Array] = []

        def mean(rest: Deadline) -> None:
            on_host = metric.cpu() if isinstance(metric, torch.Tensor) else metric
            means.append(self._comm.mean(on_host, timeout=rest.remaining()))

        self._make("average", self._deadline(timeout), partial(self._meet, "average"), mean)
        return means[0]

    def finish(self, *, timeout: float | None = None) -> None:
        """Flush, set the parameters of all ranks to their mean, and close; collective.

        Call `finish` after training, before evaluation. Ranks may have taken different numbers of steps. They end with
        the same parameters and, if a model was given at creation, the same buffers (see `average_buffers`). Averages
        that no `step()` used are dropped. `timeout` is as for `flush`.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As for `synchronize_parameters`.
        """
        deadline = self._deadline(timeout)
        if not self._finishing:
            self._check_open()
            self._end_step()
            self._check_between_steps("finish")
            of_buffers = [] if self._model is None else self._means_of_buffers(None)
            self._make("finish", deadline, *self._synchronization(), *of_buffers)
            self._finishing = True
        elif self._closed:
            self._check_open()
        self.close(timeout=deadline.remaining())

    def leave(self) -> None:
        """Leave without waiting for other ranks; this rank's contributions are still delivered.

        The wrapped optimizer and the model stay usable. Averages that no `step()` used are dropped. A second call does
        nothing.
        """
        if self._closed:
            return
        left, self._left, self._closed = self.closed, True, True
        self._initial.end_sharing(self._state)
        with contextlib.ExitStack() as stack:  # if one raises, the others are left too
            if self._owns_comm:
                stack.callback(self._comm.leave)
            if not left:
                stack.callback(self._leave)
                self._end_step()

    def close(self, *, timeout: float | None = None) -> None:
        """Flush, then leave; collective.

        The wrapped optimizer and the model stay usable. Averages that no `step()` used are dropped. A second call does
        nothing. `timeout` is as for `flush`.

        Raises
        ------
        RuntimeError, StallError
            As for `flush`. The optimizer stays open: call `close` again to continue, or `abort`.
        """
        if self._closed:
            return
        deadline = self._deadline(timeout)
        if self._comm.closed:
            self._leave_at_once()
        elif not self._left:
            self._end_step()
            self._check_between_steps("close")
            self._flush(deadline)
            self._leave()
        self._left = True
        self._initial.end_sharing(self._state)
        if self._owns_comm:
            self._comm.close(timeout=deadline.remaining())
        self._closed = True

    def abort(self) -> int:
        """Leave at once, without waiting for other ranks; return the number of discarded contributions.

        Use `abort` after an error from which no other call can continue. The wrapped optimizer and the model stay
        usable. All ranks must call `abort` before you create another optimizer on the communicator.
        """
        if self._closed:
            return 0
        left, self._left, self._closed = self._left, True, True
        self._initial.end_sharing(self._state)
        try:
            return 0 if left else self._leave_at_once()
        finally:
            if self._owns_comm:
                self._comm.abort()

    def statistics(self) -> Statistics:
        """Return this rank's counters, summed over this optimizer's collectives; local, without communication."""
        each = [collective.statistics() for collective in self._collectives()]
        return Statistics(waited=sum(one.waited for one in each), memory_bytes=sum(one.memory_bytes for one in each))

    @property
    def name(self) -> str:
        """The optimizer's name in messages and traces."""
        return self._name

    @property
    def comm(self) -> Communicator:
        """The communicator of this optimizer."""
        return self._comm

    @property
    def closed(self) -> bool:
        """Whether this rank has left the optimizer's collectives, or the communicator is closed."""
        return self._left or self._comm.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made this optimizer unusable; further calls raise it. None if usable or closed."""
        every = [] if self.closed else [self._comm.failed, *(each.failed for each in self._collectives())]
        return next((error for error in every if error is not None), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flush and close; after an exception, close at once and warn about discarded contributions."""
        can_lose = self._discards and not self.closed
        exit_context(self._name, kind, self, self._comm._context, is_open=can_lose)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state, between steps; drop averages that no `step()` used.

        Raises
        ------
        RuntimeError
            A step has begun and has not completed: call `step()` again first.
        """
        if not self.closed:
            self._end_step()
            self._check_no_step_under_way("load_state_dict")
        super().load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients, as the wrapped optimizer does."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def _check_open(self) -> None:
        if self._left:
            raise ClosedError(f"{self._name} is closed")
        if self._comm.closed:
            raise ClosedError(f"{self._name}: its communicator is closed")

    def _check_between_steps(self, call: str) -> None:
        self._check_open()
        self._operations.check(call)
        for each in self._flushed_together():
            each._check_no_step_under_way(call)
