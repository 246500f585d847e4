"""Eager-SGD for PyTorch: an optimizer whose gradients are averaged by partial allreduces (eager-SGD, algorithm 2)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, SupportsFloat, overload

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("EagerOptimizer needs PyTorch: pip install 'pycollectives[torch]'", name=error.name) from None

from ..communicator import Communicator
from ..partial_allreduce.policies import Policy, Quorum
from ..support.deadline import Deadline
from ..support.errors import ClosedError
from ..support.lifecycle import exit_context
from . import parameters as replicas
from .arguments import Arguments
from .averaging import GradientAverager
from .deadlock_guard import DeadlockGuard
from .parameters import Signature, name_of, parameters_of
from .statistics import StepStatistics
from .wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from ..partial_allreduce.eager_mean import Average, EagerMean
    from ..support.typing import Array, BufferSpec, Missed

__all__ = ["EagerOptimizer"]

MIB = 2**20

_deadlock_guard = DeadlockGuard()


class EagerOptimizer(StepStatistics, WrappedOptimizer):
    """Any `torch.optim.Optimizer`, whose `step` uses gradients averaged over ranks without waiting for stragglers.

    Gradients are fused into buckets, each with a persistent partial allreduce. `backward()` contributes a bucket as
    soon as it has all its gradients; `step()` contributes the others, waits as the policy says, and lets the wrapped
    optimizer step with the averages in `.grad`. What a rank contributed too late goes into the next round.

    Made and closed by all ranks. As a context manager it is flushed and closed at the end (collective); if the block
    raises, it is closed at once, and a `RuntimeWarning` says what is discarded.

    A second one in a thread is refused, by `ValueError`, if ranks could wait for each other in both: see docs/torch.md.

    Parameters
    ----------
    optimizer
        Anything but LBFGS, whose steps evaluate the model several times. Its parameters are in host memory.
    comm
        A `Communicator`, or an mpi4py communicator, for which one is made and closed with this optimizer.
    policy
        Who may start a round: an object such as `Quorum(2)`, or its text, such as "quorum:2". Default: half of the
        ranks, once they have arrived. See docs/semantics.md.
    missed
        What a rank that is behind is given: "sum", all results that it missed, or "latest", the newest alone
        (eager-SGD: replicas drift apart, and `sync_every` brings them together).
    average
        Divide by the size of the communicator ("world"; eager-SGD), or by the ranks that are in the round
        ("contributors").
    bucket_bytes
        A bucket is closed when it has so many.
    sync_every
        Call `synchronize_parameters` after so many steps, of which all ranks make equally many then. None: never.
    overlap
        Contribute during `backward()`. False: not before `step()`, so that gradients may be changed until then, and
        accumulate over several `backward()` without `no_sync`.
    broadcast
        Give all ranks the parameters of rank 0 at first.
    max_staleness, history
        As for `Communicator.partial_allreduce`.
    timeout
        Seconds for each step, flush and synchronization. None: the communicator's default.
    name
        In messages and traces.

    Raises
    ------
    TypeError, ValueError
        An argument or a parameter is refused: on this rank. The others raise `MismatchError`.
    MismatchError
        Arguments, or shapes, dtypes or order of parameters differ between ranks.

    >>> import torch, pycollectives as pc
    >>> from mpi4py import MPI
    >>> from pycollectives.interop.torch import EagerOptimizer
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> with EagerOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), MPI.COMM_SELF) as optimizer:
    ...     optimizer.zero_grad()
    ...     model(torch.ones(2)).sum().backward()
    ...     optimizer.step()
    >>> model.weight.tolist()
    [[-0.5, -0.5]]
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        policy: Policy | str = Quorum(),  # noqa: B008 - immutable
        *,
        missed: Missed = "sum",
        average: Average = "world",
        bucket_bytes: int = 25 * MIB,
        sync_every: int | None = None,
        overlap: bool = True,
        broadcast: bool = True,
        max_staleness: int | None = None,
        history: int = 8,
        timeout: float | None = None,
        name: str = "EagerOptimizer",
    ) -> None:
        """See the class."""
        self.optimizer = optimizer
        self._owns_comm = not isinstance(comm, Communicator)
        self._comm = comm if isinstance(comm, Communicator) else Communicator(comm)
        self._closed = False
        self._steps = 0
        self._evaluated: tuple[float] | None = None  # the loss of a closure whose gradients are not averaged yet
        self._name = name
        self._arguments = Arguments(
            policy=policy,
            missed=missed,
            average=average,
            bucket_bytes=bucket_bytes,
            sync_every=sync_every,
            broadcast=broadcast,
            max_staleness=max_staleness,
            history=history,
            timeout=timeout,
        )
        self._gradients = GradientAverager(
            self._make_mean,
            overlap=overlap,
            name_of=partial(name_of, optimizer),
        )
        try:
            self._comm.agree("EagerOptimizer", self._checked)
            timeout = self._arguments.timeout
            self._timeout = self._comm.timeout if timeout is None else timeout
            self._add(parameters_of(optimizer.param_groups))
        except BaseException:
            self._abort()
            raise

    def _checked(self) -> Signature:
        if isinstance(self.optimizer, (torch.optim.LBFGS, EagerOptimizer)):
            raise TypeError(
                f"optimizer: {type(self.optimizer).__name__} is refused: expected one that uses each gradient once"
            )
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(self.optimizer).__name__}")
        self._arguments = self._arguments.checked(self._comm.size)
        parameters = parameters_of(self.optimizer.param_groups)
        if not any(parameter.requires_grad for parameter in parameters):
            raise ValueError("optimizer: none of its parameters requires gradients")
        if self._comm.size > 1:
            _deadlock_guard.admit(self, self._arguments.waits(self._comm.size))
        return self._arguments.signature(parameters)

    def _make_mean(self, name: str, like: Array) -> EagerMean:
        return self._arguments.make_mean(self._comm, f"{self._name} {name}", like)

    # ------------------------------------------------------------------------------------------------ parameters

    def _add(self, parameters: Sequence[torch.Tensor]) -> None:
        arguments = self._arguments
        if arguments.broadcast:
            replicas.give_those_of_rank_0(self._comm, parameters, arguments.bucket_bytes, Deadline(self._timeout))
        self._gradients.add(parameters, arguments.bucket_bytes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimizer, and buckets for them; collective, between steps.

        Raises
        ------
        TypeError, ValueError
            The wrapped optimizer refuses the group, or its gradients cannot be averaged: on this rank. The others raise
            `MismatchError`, and no rank has the group.
        MismatchError
            Shapes, dtypes or order of parameters differ between ranks, none of which has the group then.
        RuntimeError, StallError, ClosedError
            As `flush`.
        """
        self._check_between_steps("add_param_group")
        self.flush()  # ranks wait for each other here: none may be needed in a bucket
        groups = self.optimizer.param_groups
        before = len(groups)

        def added() -> Signature:
            self.optimizer.add_param_group(param_group)
            return Signature.of(parameters_of(groups[before:]))

        try:
            self._comm.agree("EagerOptimizer.add_param_group", added)
        except BaseException:
            del groups[before:]
            raise
        self._add(parameters_of(groups[before:]))

    def add_unfrozen(self) -> None:
        """Make buckets for parameters that require gradients by now, and have none; collective, between steps.

        For layers that were frozen when this optimizer was made. If there are none, it only flushes.

        Raises
        ------
        MismatchError
            They differ between ranks.
        RuntimeError, StallError, ClosedError
            As `flush`.
        """
        self._check_between_steps("add_unfrozen")
        self.flush()
        parameters = self._gradients.without_bucket(self.optimizer.param_groups)
        self._comm.agree("EagerOptimizer.add_unfrozen", lambda: Signature.of(parameters))
        self._add(parameters)

    # ------------------------------------------------------------------------------------------------ a step

    def no_sync(self) -> AbstractContextManager[None]:
        """Let gradients accumulate: nothing is contributed by a `backward()` in this block, as with torch's DDP."""
        return self._gradients.no_sync()

    @torch.compiler.disable
    def average_gradients(self) -> None:
        """Contribute what is not yet, wait as the policy says, and put averages into `.grad`.

        `step()` does it. To be called before, by programs that change averaged gradients, such as by clipping; `step()`
        then only lets the wrapped optimizer step.

        Raises
        ------
        RuntimeError
            Gradients were changed after `backward()`; a parameter was unfrozen, and `add_unfrozen` was not called; a
            `backward()` came after averages that neither `step()` used nor `zero_grad()` of this optimizer dropped.
        StallError
            Not done in time. To be called again: it goes on where it was.
        ClosedError
            After `close`.
        """
        self._check_open()
        self._check_trainable()
        self._gradients.average(Deadline(self._timeout))
        self._evaluated = None

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Average gradients, and let the wrapped optimizer step with them.

        Parameters
        ----------
        closure
            Evaluates the model and returns the loss, as for the wrapped optimizer; gradients are averaged after it.
            A step that is called again after `StallError` does not run it again.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `average_gradients`.
        """
        self._check_open()
        if closure is None:
            self.average_gradients()
            loss: float | None = self.optimizer.step()
        else:
            loss = self.optimizer.step(partial(self._evaluate, closure))
        self._gradients.end_step()
        self._steps += 1
        sync_every = self._arguments.sync_every
        if sync_every is not None and self._steps % sync_every == 0:
            self.synchronize_parameters()
        return loss

    def _evaluate(self, closure: Callable[[], float]) -> float:
        if self._evaluated is None or not self._gradients.on_their_way:  # else this step ran into its time limit
            self._gradients.end_step()
            self._evaluated = (closure(),)
        (loss,) = self._evaluated
        self.average_gradients()
        return loss

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self) -> None:
        """Deliver the gradients that still wait, of all ranks, and apply what this rank is owed; collective.

        Owed are, in one average: results that it has not been given (`missed="latest"`: some of them), and those of a
        last round with all gradients that wait. If there are any, the wrapped optimizer steps once with them. `.grad`
        is None afterwards, or what this rank accumulated there (`no_sync`, `overlap=False`), for the next step. Other
        optimizers of this thread and `Communicator` that may wait are flushed with it.

        Raises
        ------
        RuntimeError
            Gradients are on their way, or averages wait, for a `step()`.
        StallError
            Some ranks do not flush in time. To be called again: it goes on where it was, and is to be through before
            the next gradients.
        ClosedError
            After `close`.
        """
        self._check_between_steps("flush")
        self._flush(Deadline(self._timeout))

    def _flush(self, deadline: Deadline) -> None:
        together = self._flushed_together()
        for each in together:  # before this rank waits in one: nobody may need it in another
            each._gradients.start_flush()
        for each in together:
            each._gradients.flush(deadline)
        for each in together:  # not before: if one runs into its time limit, all are called again, and go on
            each._end_flush()

    def _end_flush(self) -> None:
        if self._gradients.end_flush():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._gradients.put_back()

    def _flushed_together(self) -> list[EagerOptimizer]:
        flushing = self._gradients.flushing
        others = [other for other in _deadlock_guard.others_that_wait(self) if other._comm is self._comm]
        return [self, *(other for other in others if other._gradients.flushing == flushing)]

    def synchronize_parameters(self) -> None:
        """Flush, and give every rank the mean of all ranks' parameters (eager-SGD, section 5); collective.

        The state of the wrapped optimizer, such as momentum, and buffers of the model stay each rank's own.

        Raises
        ------
        RuntimeError, StallError
            As `flush`.
        ClosedError
            After `close`; or another rank has left.
        """
        self._check_between_steps("synchronize_parameters")
        deadline = Deadline(self._timeout)
        self._flush(deadline)
        try:
            for bucket in self._gradients.buckets:
                replicas.average(self._comm, bucket.parameters, deadline)
        except ClosedError as error:
            raise ClosedError(
                f"{self._name}: parameters cannot be synchronized, since a rank has left, by an exception or after "
                f"fewer steps: with sync_every all ranks make equally many steps, never uneven numbers ({error})"
            ) from None

    def average(self, metric: SupportsFloat | BufferSpec) -> float | Array:
        """Flush, and return the mean over ranks of a number or an array, such as a loss; collective.

        Ranks may have made different numbers of steps. To be called by all of them equally often, between steps. What
        is evaluated for it, as an argument, is evaluated before the flush: `flush` first if that is to see its step.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `flush`.
        ValueError, TypeError, BufferError, MismatchError
            As `Communicator.mean`.
        """
        self._check_between_steps("average")
        deadline = Deadline(self._timeout)
        self._flush(deadline)
        return self._comm.mean(metric, deadline.remaining())

    def finish(self) -> None:
        """Flush, give every rank the mean of all ranks' parameters, and leave for good; collective.

        At the end of a training, before evaluation: ranks may have made different numbers of steps, and end with the
        same parameters. Averages that no `step()` used are dropped.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `synchronize_parameters`.
        """
        self._check_open()
        self._gradients.end_step()
        self.synchronize_parameters()
        self.close()

    def close(self) -> None:
        """Flush, and leave for good; collective. The wrapped optimizer and the model stay usable.

        Averages that no `step()` used are dropped.
        """
        if self._closed:
            return
        self._gradients.end_step()
        self.flush()
        self._gradients.close()
        self._closed = True
        if self._owns_comm:
            self._comm.close()

    def _abort(self) -> int:
        """Close at once, and wait for nobody; the number of contributions that are discarded."""
        if self._closed:
            return 0
        discarded = self._gradients.abort()
        self._closed = True
        if self._owns_comm:
            self._comm.abort()
        return discarded

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether this rank has left for good."""
        return self._closed

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flush and close; after an exception close at once and warn of what is discarded."""
        exit_context(self._name, kind, close=self.close, abort=self._abort, is_open=not self._closed)

    # ------------------------------------------------------------------------------------------------ checks

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._name} is closed")

    def _check_between_steps(self, call: str) -> None:
        self._check_open()
        for each in self._flushed_together():
            if each._gradients.on_their_way:
                raise RuntimeError(f"{call}: gradients of {each.name} are on their way: call step() before")
            if each._gradients.averaged:
                raise RuntimeError(f"{call}: averages of {each.name} wait: call step(), or zero_grad() to drop them")

    def _check_trainable(self) -> None:
        for parameter in self._gradients.without_bucket(self.optimizer.param_groups):
            raise RuntimeError(
                f"parameter {name_of(self.optimizer, parameter)} requires gradients, and did not, or was not there, "
                "when buckets were made: after unfreezing, and before backward(), call add_unfrozen() on all ranks"
            )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What a GradScaler asks in its `step`: False, it is to unscale `.grad` itself, which no version shows."""
        if self._gradients.on_their_way:
            raise RuntimeError(
                "GradScaler: backward() has contributed scaled gradients: call average_gradients() before, or make "
                "EagerOptimizer with overlap=False"
            )
        return False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's; averages that no step used are dropped, as when a GradScaler skips one."""
        self.optimizer.zero_grad(set_to_none=set_to_none)
        self._gradients.drop()

    def __repr__(self) -> str:
        """Show the wrapped optimizer and what averages its gradients."""
        state = f"{len(self._gradients.buckets)} buckets{', closed' if self._closed else ''}"
        return f"EagerOptimizer({self.optimizer!r}, {self._arguments.policy!r}, {state})"
