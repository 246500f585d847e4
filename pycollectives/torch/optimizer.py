"""A torch optimizer that works with those of the other ranks: what all of its kind have in common.

A derived class says how gradients or parameters are exchanged. It makes its collectives after `_begin`, in
`_creation`, and implements the methods below "for derived classes".
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
from ..support.errors import ClosedError, MismatchError, StallError
from ..support.lifecycle import exit_context
from ..support.validation import checked_timeout
from .deadlock_guard import DeadlockGuard, Waits
from .drift import warn_of_running_statistics
from .initial_state import InitialState
from .module_buffers import ModuleBuffers
from .parameters import Signature, check_one_device, name_of, parameters_of
from .refusals import check_model, check_no_ddp, check_optimizer, open_wrappers
from .wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from ..context import AnyCollective
    from ..support.typing import Array, BufferSpec

__all__ = ["CollectiveOptimizer"]

LEFT = "left the communicator"
"""By which a `StallError` tells of ranks that will never make a call."""

_deadlock_guard = DeadlockGuard()


class CollectiveOptimizer(WrappedOptimizer, ABC):
    """A wrapped optimizer with a communicator: made, flushed and closed by all ranks.

    Parameters
    ----------
    optimizer
        Any but LBFGS, and none that is wrapped already. Its parameters are in host memory, or on one CUDA device.
    comm
        A `Communicator`, or an mpi4py communicator, for which one is made and closed with this optimizer.
    model
        Whose buffers and other parameters are broadcast too. None: there are none, or they stay each rank's own.
    broadcast
        Give all ranks the parameters of rank 0 at first.
    broadcast_state
        Give them its buffers, and the state and hyperparameters of the wrapped optimizer. None: as `broadcast`.
    timeout
        Seconds for each call that waits. None: the communicator's default.
    name
        In messages.
    """

    _discards: ClassVar[bool] = True
    """Whether leaving at once can lose what this rank has contributed, so that a warning is worth while."""

    _flush_waits_for_all: ClassVar[bool] = True
    """Whether all ranks have called `flush` when it returns."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        *,
        model: torch.nn.Module | None,
        broadcast: bool,
        broadcast_state: bool | None,
        timeout: float | None,
        name: str,
    ) -> None:
        """See the class; `_begin` is to follow."""
        self.optimizer = optimizer
        self._owns_comm = not isinstance(comm, Communicator)
        self._comm = comm if isinstance(comm, Communicator) else Communicator(comm, timeout=timeout)
        self._closed = False
        self._finishing = False  # `finish` has only to close
        self._left = False  # the collectives; the communicator of this one's own may still be open
        self._name = name
        self._model = model
        self._initial = InitialState(optimizer, self._comm, model, broadcast, broadcast_state, type(self).__name__)
        self._timeout = timeout
        self._looked_for_ddp = False
        self._name_of = partial(name_of, optimizer, model=model)

    # ------------------------------------------------------------------------------------------ for derived classes

    @abstractmethod
    def _check_no_step_under_way(self, call: str) -> None:
        """Raise `RuntimeError` if a step has begun, or its averages wait, so that `call` comes at the wrong time."""

    @property
    @abstractmethod
    def _flushing(self) -> bool:
        """Whether `_start_flush` was called, and `_end_flush` was not."""

    @abstractmethod
    def _start_flush(self) -> None:
        """Leave, so that no rank waits for this one; nothing if that is so already."""

    @abstractmethod
    def _wait_for_flush(self, deadline: Deadline) -> None:
        """Deliver what still waits, of all ranks; collective. It goes on where it was, if it ran into its limit."""

    @abstractmethod
    def _end_flush(self) -> None:
        """Apply what this rank is owed; when all optimizers that are flushed together are through."""

    @abstractmethod
    def _average_parameters(self, deadline: Deadline) -> None:
        """Give every rank the mean of all ranks' parameters, after a flush; collective."""

    @abstractmethod
    def _end_step(self) -> None:
        """Begin another step, whether or not a `step()` has used what the last one prepared."""

    @abstractmethod
    def _leave(self) -> None:
        """Leave the collectives, without waiting."""

    @abstractmethod
    def _leave_at_once(self) -> int:
        """Close the collectives without waiting for other ranks; return how many contributions are discarded."""

    @abstractmethod
    def _collectives(self) -> Sequence[AnyCollective]:
        """Return all that it stands on."""

    # ------------------------------------------------------------------------------------------------ creation

    @contextlib.contextmanager
    def _creation(self) -> Iterator[None]:
        """Limit the time of what is made in the block; abort if that fails."""
        try:
            with self._within(self._comm._context.deadline_of(self._timeout)) as self._creating:
                yield
        except BaseException:
            self.abort()
            raise

    @contextlib.contextmanager
    def _within(self, deadline: Deadline) -> Iterator[Deadline]:
        """Let what the communicator makes or compares in the block share a deadline."""
        with self._comm._context.rendezvous.within(deadline):
            yield deadline

    def _begin(self, check: Callable[[], tuple[Mapping[str, str | int | None], Waits]]) -> list[torch.Tensor]:
        """Check and compare what all ranks give, and broadcast what rank 0 has; collective.

        Parameters
        ----------
        check
            Checks the derived class's own arguments, and returns those that must be the same on all ranks, and what
            the exchange waits for.

        Returns
        -------
        list of torch.Tensor
            The parameters of the wrapped optimizer.
        """
        self._comm.agree(type(self).__name__, lambda: self._checked(check))
        self._timeout = self._comm.timeout if self._timeout is None else self._timeout
        if self._comm.size > 1 and self._comm.rank == 0:
            warn_of_running_statistics(self._name, parameters_of(self.optimizer.param_groups), self._model)
        return self._initial.take_from_rank_0(self._creating)

    def _checked(self, check: Callable[[], tuple[Mapping[str, str | int | None], Waits]]) -> Signature:
        check_optimizer(self.optimizer)
        self._timeout = checked_timeout(self._timeout)
        check_model(self._model)
        options, waits = check()
        parameters = parameters_of(self.optimizer.param_groups)
        if not any(parameter.requires_grad for parameter in parameters):
            raise ValueError("optimizer: none of its parameters requires gradients")
        signature = self._initial.signature(parameters, self._name_of, options)
        check_one_device(parameters)
        check_no_ddp(parameters)
        self._initial.pack()
        open_wrappers.admit(self)
        if self._comm.size > 1:
            _deadlock_guard.admit(self, waits)
        return signature

    def _look_for_ddp(self) -> None:
        """Refuse, at the first step, a model of DistributedDataParallel that was made after this optimizer."""
        if not self._looked_for_ddp:
            check_no_ddp(parameters_of(self.optimizer.param_groups))
            self._looked_for_ddp = True

    def _checked_groups(self, first_group: int) -> Signature:
        """Check parameter groups that were added, from one on, and return what must be the same on all ranks."""
        parameters = parameters_of(self.optimizer.param_groups[first_group:])
        signature = Signature.of(parameters, self._name_of)
        check_one_device(parameters_of(self.optimizer.param_groups))
        check_no_ddp(parameters)
        self._initial.pack(first_group)
        open_wrappers.admit(self)
        return signature

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self, *, timeout: float | None = None) -> None:
        """Deliver what still waits, of all ranks; collective. See the derived class."""
        self._check_between_steps("flush")
        self._flush(self._deadline(timeout))

    def _deadline(self, timeout: float | None) -> Deadline:
        """Return the deadline of a call that was given a limit, or None for that of this optimizer."""
        return Deadline(self._timeout if timeout is None else checked_timeout(timeout))

    def _flush(self, deadline: Deadline) -> None:
        together = self._flushed_together()
        with self._within(deadline):
            for each in together:  # before this rank waits in one: nobody may need it in another
                each._start_flush()
            for each in together:
                each._wait_for_flush(deadline)
            for each in together:  # not before: if one runs into its time limit, all are called again, and go on
                each._end_flush()

    def _flushed_together(self) -> list[CollectiveOptimizer]:
        flushing = self._flushing
        others = [other for other in _deadlock_guard.others_that_wait(self) if other._comm is self._comm]
        return [self, *(other for other in others if other._flushing == flushing)]

    def synchronize_parameters(self, *, timeout: float | None = None) -> None:
        """Flush, and give every rank the mean of all ranks' parameters (eager-SGD, section 5); collective.

        The state of the wrapped optimizer, such as momentum, and buffers of the model stay each rank's own. `timeout`:
        seconds; None for this optimizer's.

        Raises
        ------
        RuntimeError, StallError
            As `flush`.
        ClosedError
            After `close`; or another rank has left.
        """
        self._check_between_steps("synchronize_parameters")
        self._flush(deadline := self._deadline(timeout))
        self._synchronize_flushed(deadline)

    def _synchronize_flushed(self, deadline: Deadline) -> None:
        try:
            if self._flush_waits_for_all:  # all ranks come here now; if they do not, the communicator is lost
                self._meet("synchronize_parameters", deadline.at_least(1.0))
            self._average_parameters(deadline)
        except ClosedError as error:
            raise ClosedError(
                f"{self._name}: parameters cannot be synchronized, since a rank has left, by an exception or by fewer "
                f"steps than sync_every asks of all ({error})"
            ) from None

    def _meet(self, call: str, deadline: Deadline) -> None:
        """Make sure that all ranks come to one call: `preduce` and `mean` do not tell calls apart.

        Raises
        ------
        MismatchError
            Ranks make different calls.
        ClosedError
            Another rank has left.
        """
        name = f"{type(self).__name__}.{call}"
        try:
            with self._within(deadline):
                self._comm.agree(name, lambda: Signature("", {}))
        except MismatchError as error:
            raise MismatchError(f"{error}: with sync_every all ranks make equally many steps") from None
        except StallError as error:
            if LEFT in str(error):
                raise ClosedError(str(error)) from None
            raise

    def average_buffers(self, model: torch.nn.Module | None = None, *, timeout: float | None = None) -> None:
        """Flush, and give every rank the mean of all ranks' buffers, such as running statistics; collective.

        Of floating-point buffers; others, such as counts of batches, are given rank 0's values. What is the same on all
        ranks stays as it is, up to float32 to the bit.

        Parameters
        ----------
        model
            Whose buffers. None: of the model that was given when this optimizer was made.
        timeout
            Seconds; None for this optimizer's, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError
            There is no model, or a buffer is neither in host memory nor on a CUDA device: on this rank. The others
            raise `MismatchError`.
        MismatchError
            Number, shapes or dtypes of buffers differ between ranks.
        RuntimeError, StallError, ClosedError
            As `flush`.
        """
        self._check_between_steps("average_buffers")
        self._flush(deadline := self._deadline(timeout))
        self._average_buffers(model, deadline)

    def _average_buffers(self, model: torch.nn.Module | None, deadline: Deadline) -> None:
        def checked() -> ModuleBuffers:
            chosen = self._model if model is None else model
            if chosen is None:
                raise ValueError("average_buffers: expected a model, here or when this optimizer was made")
            check_model(chosen)
            return ModuleBuffers(chosen)

        with self._within(deadline):
            buffers = self._comm.agree(f"{type(self).__name__}.average_buffers", checked)
        buffers.average(self._comm, deadline)

    def average(self, metric: SupportsFloat | BufferSpec, *, timeout: float | None = None) -> float | Array:
        """Flush, and return the mean over ranks of a number or an array, such as a loss; collective.

        Ranks may have made different numbers of steps. To be called by all of them equally often, between steps. What
        is evaluated for it, as an argument, is evaluated before the flush: `flush` first if that is to see its step.

        Parameters
        ----------
        metric
            A number, or an array of the same shape on all ranks, as for `Communicator.mean`.
        timeout
            Seconds; None for this optimizer's, `math.inf` for no limit.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `flush`.
        ValueError, TypeError, BufferError, MismatchError
            As `Communicator.mean`.
        """
        self._check_between_steps("average")
        self._flush(deadline := self._deadline(timeout))
        on_host = metric.cpu() if isinstance(metric, torch.Tensor) else metric
        self._meet("average", deadline)
        return self._comm.mean(on_host, timeout=deadline.remaining())

    def finish(self, *, timeout: float | None = None) -> None:
        """Flush, give every rank the mean of all ranks' parameters, and leave for good; collective.

        At the end of a training, before evaluation: ranks may have made different numbers of steps, and end with the
        same parameters, and with the same buffers (see `average_buffers`) if a model was given when this optimizer was
        made. Averages that no `step()` used are dropped. `timeout`: seconds; None for this optimizer's.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `synchronize_parameters`.
        """
        deadline = self._deadline(timeout)
        if not self._finishing:
            self._check_open()
            self._end_step()
            self._check_between_steps("finish")
            self._flush(deadline)
            self._synchronize_flushed(deadline)
            if self._model is not None:
                self._average_buffers(None, deadline)
            self._finishing = True
        elif self._closed:
            self._check_open()
        self.close(timeout=deadline.remaining())

    def leave(self) -> None:
        """Take no further part, without waiting for other ranks. What this rank contributed is still delivered.

        The wrapped optimizer and the model stay usable; averages that no `step()` used are dropped. Leaving again does
        nothing.
        """
        if self._closed:
            return
        left, self._left, self._closed = self.closed, True, True
        with contextlib.ExitStack() as stack:  # if one raises, the rest is left all the same
            if self._owns_comm:
                stack.callback(self._comm.leave)
            if not left:
                stack.callback(self._leave)
                self._end_step()

    def close(self, *, timeout: float | None = None) -> None:
        """`flush`, then `leave`; collective. The wrapped optimizer and the model stay usable. Again does nothing.

        Averages that no `step()` used are dropped. `timeout`: seconds; None for this optimizer's.

        Raises
        ------
        RuntimeError, StallError
            As `flush`. It stays open: call it again to go on, or `abort`.
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
        if self._owns_comm:
            self._comm.close(timeout=deadline.remaining())
        self._closed = True

    def abort(self) -> int:
        """Leave at once, without waiting for other ranks; the number of contributions that are discarded.

        For use after an error from which no other call can continue. The wrapped optimizer and the model stay usable.
        Call it on all ranks before you make another optimizer on the communicator.
        """
        if self._closed:
            return 0
        left, self._left, self._closed = self._left, True, True
        try:
            return 0 if left else self._leave_at_once()
        finally:
            if self._owns_comm:
                self._comm.abort()

    def statistics(self) -> Statistics:
        """Return what this rank has counted, of all collectives of this optimizer; local, without communication."""
        each = [collective.statistics() for collective in self._collectives()]
        return Statistics(waited=sum(one.waited for one in each), memory_bytes=sum(one.memory_bytes for one in each))

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._name

    @property
    def comm(self) -> Communicator:
        """The communicator that it works on."""
        return self._comm

    @property
    def closed(self) -> bool:
        """Whether this rank has left, or its communicator has closed."""
        return self._left or self._comm.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made it unusable, which further calls raise; None: it is usable, or closed."""
        every = [] if self.closed else [self._comm.failed, *(each.failed for each in self._collectives())]
        return next((error for error in every if error is not None), None)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flush and close; after an exception close at once and warn of what is discarded."""
        can_lose = self._discards and not self.closed
        exit_context(self._name, kind, self, self._comm._context, is_open=can_lose)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state, between steps; averages that no `step()` used are dropped.

        Raises
        ------
        RuntimeError
            A step has begun and is not done: call `step()` again before.
        """
        if not self.closed:
            self._end_step()
            self._check_no_step_under_way("load_state_dict")
        super().load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def _check_open(self) -> None:
        if self._left:
            raise ClosedError(f"{self._name} is closed")
        if self._comm.closed:
            raise ClosedError(f"{self._name}: its communicator is closed")

    def _check_between_steps(self, call: str) -> None:
        self._check_open()
        for each in self._flushed_together():
            each._check_no_step_under_way(call)
