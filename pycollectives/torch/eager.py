"""Eager-SGD for PyTorch: an optimizer that averages gradients by partial allreduces (eager-SGD, algorithm 2)."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from ..policies import Full, Policy, Quorum
from ..support.deadline import Deadline
from . import parameters as replicas
from .arguments import Arguments
from .averaging import GradientAverager
from .drift import is_adaptive
from .optimizer import CollectiveOptimizer
from .parameters import Signature, parameters_of
from .statistics import StepStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mpi4py import MPI
    from torch.optim.lr_scheduler import LRScheduler

    from ..communicator import Communicator
    from ..context import AnyCollective
    from ..partial_allreduce.eager_mean import DivideBy
    from ..support.step_timer import StepTimer
    from ..support.typing import Missed
    from .deadlock_guard import Waits
    from .means import TensorMean

MIB = 2**20


class EagerOptimizer(StepStatistics, CollectiveOptimizer):
    """Wrap a `torch.optim.Optimizer` so that it steps with averaged gradients and does not wait for stragglers.

    Gradients are fused into buckets, each with a persistent partial allreduce. `backward()` contributes a bucket once
    all its gradients are ready. `step()` contributes the remaining buckets, waits as the policy requires, writes the
    averages to `.grad` and calls the wrapped optimizer's `step()`. Gradients that arrive late enter the next round.

    All ranks create and close the wrapper together. As a context manager, it flushes and closes at the end of the block
    (collective). If the block raises, it closes at once, and a `RuntimeWarning` reports the discarded contributions.

    Creating a second optimizer in the same thread raises `ValueError` if ranks could deadlock between the two: see
    docs/torch.md.

    Parameters
    ----------
    optimizer
        Any optimizer except LBFGS, whose steps evaluate the model several times. Its parameters are in host memory or
        on one CUDA device. Move the model to its device first.
    comm
        A `Communicator`, or an mpi4py communicator. From the latter, this optimizer creates a `Communicator`, which it
        also closes. With spares or respawn, a rank that replaces a dead one gets parameters, buffers and state from a
        survivor.
    policy
        When a round may start: an object such as `Quorum(2)`, or its string, such as "quorum:2". Default: once half of
        the ranks have arrived. See docs/semantics.md.
    missed
        The results that a rank receives when it is behind: "sum" for all missed results, "latest" for only the newest,
        as in eager-SGD. With "latest", replicas drift apart, and `sync_every` makes them equal again.
    divide_by
        Divide the sum of gradients by the size of the communicator ("world", as eager-SGD does), or by the number of
        ranks in the round ("contributors").
    bucket_bytes
        Size in bytes at which a bucket is full.
    sync_every
        Call `synchronize_parameters` after this many steps. All ranks must then take the same number of steps. None
        means never.
    overlap
        Contribute during `backward()`. If False, contribute only in `step()`: until then, gradients may change, and
        they accumulate over several `backward()` calls without `no_sync`.
    model
        The model whose buffers (such as running statistics) and other parameters are broadcast too, and whose buffers
        `finish` averages. Pass None if the model has no such state, or each rank keeps its own.
    schedulers
        Learning-rate schedulers of `optimizer`, already created. Ranks receive the schedulers' state with the
        optimizer's, from rank 0 (`broadcast_state`) or a survivor. The program calls the schedulers' `step()`.
    broadcast
        Start all ranks with the parameters of rank 0.
    broadcast_state
        Also start all ranks with rank 0's buffers of `model`, and with the state and hyperparameters of its wrapped
        optimizer, such as momentum and learning rates. It is then enough to load a checkpoint on rank 0. If None, the
        value of `broadcast` applies.
    max_staleness, history
        As for `Communicator.partial_allreduce`.
    staged
        Copy gradients on a CUDA device through pinned host memory. If None, copy only if the partial allreduce cannot
        use device memory; a `RuntimeWarning` on rank 0 then gives the reason. If False, raise an error in that case.
        See `memory`.
    timeout
        Limit in seconds for each step, flush and synchronization. None means the communicator's default.
    step_timer
        A `StepTimer` that records this rank's steps, without waiting times, for `python -m pycollectives advise`. The
        first step is not recorded. If None, nothing is recorded.
    name
        Name in messages and traces.

    Raises
    ------
    TypeError, ValueError
        An argument or a parameter is invalid on this rank. The other ranks raise `MismatchError`.
    MismatchError
        The arguments, or the shapes, dtypes or order of the parameters, differ between ranks.

    >>> import torch, pycollectives as pc
    >>> from mpi4py import MPI
    >>> from pycollectives.torch import EagerOptimizer
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
        divide_by: DivideBy = "world",
        bucket_bytes: int = 25 * MIB,
        sync_every: int | None = None,
        overlap: bool = True,
        model: torch.nn.Module | None = None,
        schedulers: Sequence[LRScheduler] = (),
        broadcast: bool = True,
        broadcast_state: bool | None = None,
        max_staleness: int | None = None,
        history: int = 8,
        staged: bool | None = None,
        timeout: float | None = None,
        step_timer: StepTimer | None = None,
        name: str = "EagerOptimizer",
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
        self._steps = 0
        self._unsynchronized: tuple[float | None] | None = None  # the loss of a step after which sync_every is due
        self._evaluated: tuple[float] | None = None  # the loss of a closure whose gradients are not averaged yet
        self._arguments = Arguments(
            policy=policy,
            missed=missed,
            divide_by=divide_by,
            bucket_bytes=bucket_bytes,
            sync_every=sync_every,
            max_staleness=max_staleness,
            history=history,
            staged=staged,
        )
        self._gradients = GradientAverager(
            self._make_mean,
            overlap=overlap,
            name_of=self._name_of,
            is_open=lambda: not self._comm.closed,
        )
        with self._creation():
            parameters = self._begin(self._checked_arguments)
            self._warn_if_staged()
            self._warn_if_adaptive()
            self._gradients.add(parameters, self._arguments.bucket_bytes)

    def _checked_arguments(self) -> tuple[Mapping[str, str | int | None], Waits]:
        parameters = parameters_of(self.optimizer.param_groups)
        device = parameters[0].device if parameters else torch.device("cpu")
        self._arguments = self._arguments.checked(self._comm, device)
        return self._arguments.signature(), self._arguments.waits(self._comm.size)

    def _warn_if_staged(self) -> None:
        if self._arguments.why_staged and self._comm.rank == 0:
            text = f"{self._name}: gradients are staged through the host, since {self._arguments.why_staged}"
            warnings.warn(f"{text}; pass staged=True to accept this without a warning", RuntimeWarning, stacklevel=3)

    def _warn_if_adaptive(self) -> None:
        """Warn that a late rank takes one step with the sum of several averages; other ranks take several steps."""
        apart = self._arguments.sync_every is None and not isinstance(self._arguments.policy, Full)
        if apart and is_adaptive(self.optimizer) and self._comm.size > 1 and self._comm.rank == 0:
            warnings.warn(
                f"{self._name}: with {type(self.optimizer).__name__}, parameters differ between ranks after a rank "
                f"is late, even after a flush. Pass sync_every=N, which averages them every N steps, or policy='full'",
                RuntimeWarning,
                stacklevel=3,
            )

    @property
    def memory(self) -> Literal["host", "device", "staged"]:
        """The memory that the partial allreduce uses: "host", "device", or "staged" (gradients copied to the host)."""
        return self._arguments.memory

    def _make_mean(self, name: str, like: torch.Tensor) -> TensorMean:
        return self._arguments.make_mean(self._comm, f"{self._name} {name}", like)

    # ------------------------------------------------------------------------------------------------ parameters

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimizer and make buckets for them; collective, between steps.

        Raises
        ------
        TypeError, ValueError
            The wrapped optimizer refuses the group on this rank, or gradients of the group cannot be averaged. The
            other ranks raise `MismatchError`. No rank keeps the group.
        MismatchError
            Shapes, dtypes or order of the parameters differ between ranks. No rank keeps the group.
        RuntimeError, StallError, ClosedError
            As for `flush`.
        """
        self._check_between_steps("add_param_group")
        deadline = Deadline(self._timeout)
        self._flush(deadline)  # the calls below wait for all ranks, so that no rank may wait in a bucket
        groups = self.optimizer.param_groups
        before = len(groups)

        def added() -> Signature:
            self.optimizer.add_param_group(param_group)
            return self._checked_groups(before)

        with self._within(deadline):
            try:
                self._comm.agree("EagerOptimizer.add_param_group", added)
            except BaseException:
                del groups[before:]
                raise
            self._gradients.add(self._initial.take_from_rank_0(deadline, before), self._arguments.bucket_bytes)

    def add_unfrozen(self) -> None:
        """Make buckets for parameters that were unfrozen after creation; collective, between steps.

        A parameter counts as unfrozen if it requires gradients and has no bucket. Without such parameters, the call
        only flushes.

        Raises
        ------
        MismatchError
            The unfrozen parameters differ between ranks.
        RuntimeError, StallError, ClosedError
            As for `flush`.
        """
        self._check_between_steps("add_unfrozen")
        deadline = Deadline(self._timeout)
        self._flush(deadline)
        without = self._gradients.without_bucket(self.optimizer.param_groups)
        parameters = [parameter for parameter in without if parameter.requires_grad]
        with self._within(deadline):
            self._comm.agree("EagerOptimizer.add_unfrozen", lambda: Signature.of(parameters, self._name_of))
            self._initial.broadcast_parameters(parameters, deadline)
            self._gradients.add(parameters, self._arguments.bucket_bytes)

    # ------------------------------------------------------------------------------------------------ a step

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which `backward()` accumulates gradients without contributing, like DDP's `no_sync`."""
        return self._gradients.no_sync()

    @torch.compiler.disable
    def average_gradients(self) -> None:
        """Contribute the remaining gradients, wait as the policy requires, and write the averages to `.grad`.

        `step()` calls this method. Call it yourself, before `step()`, to change the averaged gradients, for example to
        clip them. `step()` then only calls the wrapped optimizer.

        Raises
        ------
        RuntimeError
            Gradients changed after `backward()`, a parameter was unfrozen without a call to `add_unfrozen`, or
            `backward()` ran before `step()` had used the previous averages or this optimizer's `zero_grad()` had
            dropped them.
        ValueError
            The model was passed to `DistributedDataParallel` after this optimizer was made.
        StallError
            The time limit was reached. Call again to continue.
        ClosedError
            This rank has left.
        """
        self._check_open()
        self._look_for_ddp()
        self._check_trainable()
        if not self._gradients.repeats:
            with self._times.waiting():
                self._gradients.average(Deadline(self._timeout))
        self._evaluated = None

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Average the gradients and step the wrapped optimizer with them.

        Parameters
        ----------
        closure
            Function that evaluates the model and returns the loss, as for the wrapped optimizer. Gradients are averaged
            after the closure. If `step` is called again after `StallError`, the closure does not run again.

        Returns
        -------
        float or None
            The loss that the closure returned; None without a closure.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As for `average_gradients`.
        """
        self._check_open()
        self._operations.check("step")
        if self._unsynchronized is not None:  # the last step reached its time limit while it synchronized
            (loss,) = self._unsynchronized
            self._complete_step(Deadline(self._timeout))
            self._times.end_step()
            return loss
        if closure is None:
            self.average_gradients()
            loss = self.optimizer.step()
        else:
            loss = self.optimizer.step(partial(self._evaluate, closure))
        self._gradients.end_step()
        self._steps += 1
        sync_every = self._arguments.sync_every
        if sync_every is not None and self._steps % sync_every == 0:
            self._check_between_steps("synchronize_parameters")
            self._unsynchronized = (loss,)
            self._complete_step(Deadline(self._timeout))
        self._times.end_step()
        return loss

    def _evaluate(self, closure: Callable[[], float]) -> float:
        if self._evaluated is None or not self._gradients.on_their_way:  # not repeated after a timeout
            self._gradients.end_step()
            self._evaluated = (closure(),)
        (loss,) = self._evaluated
        self.average_gradients()
        return loss

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self, *, timeout: float | None = None) -> None:
        """Deliver all pending gradients and apply the outstanding results of this rank; collective.

        The outstanding results are added up into one average. They are the results that this rank has not received
        (with `missed="latest"`, some of them), and the result of a last round with all pending gradients. If there are
        any, the wrapped optimizer takes one step with them. `.grad` is unchanged afterwards. Other optimizers of this
        thread and `Communicator` whose calls may wait are flushed too.

        Parameters
        ----------
        timeout
            Limit in seconds, by default this optimizer's; `math.inf` for no limit.

        Raises
        ------
        RuntimeError
            Gradients are in flight, or averages are unused: call `step()` first.
        StallError
            Some ranks did not flush within the limit. Call again to continue. The flush must complete before the next
            gradients.
        ClosedError
            This rank has left.
        """
        super().flush(timeout=timeout)

    def _check_no_step_under_way(self, call: str) -> None:
        if self._gradients.on_their_way:
            raise RuntimeError(f"{call}: gradients of {self._name} are in flight: call step() first, or abort()")
        if self._gradients.averaged:
            raise RuntimeError(f"{call}: averages of {self._name} are unused: call step(), or zero_grad() to drop them")

    @property
    def _flushing(self) -> bool:
        return self._gradients.flushing

    def _begin_flush(self) -> None:
        self._gradients.begin_flush()

    def _start_flush(self) -> None:
        self._gradients.start_flush()

    def _wait_for_flush(self, deadline: Deadline) -> None:
        self._gradients.flush(deadline)

    def _end_flush(self) -> None:
        self._gradients.end_flush(self.optimizer.param_groups, self.optimizer.step)

    def _flush(self, deadline: Deadline) -> None:
        if self._unsynchronized is None:
            super()._flush(deadline)
        else:
            self._complete_step(deadline)

    def _complete_step(self, deadline: Deadline) -> None:
        """Flush and average the parameters at the end of a step, as `sync_every` requires; collective."""
        with self._times.waiting():
            self._operations.make("step", deadline, super()._flush, *self._synchronization())
        self._unsynchronized = None
        self._gradients.repeats = False

    def _make(self, call: str, deadline: Deadline, *operations: Callable[[Deadline], None]) -> None:
        if self._unsynchronized is not None:  # operations of one call at a time
            self._complete_step(deadline)
        super()._make(call, deadline, *operations)

    def _means_of_parameters(self) -> Sequence[Callable[[Deadline], None]]:
        return [partial(replicas.average, self._comm, bucket.parameters) for bucket in self._gradients.buckets]

    def _end_step(self) -> None:
        self._gradients.drop()

    def _leave(self) -> None:
        self._gradients.leave()

    def _collectives(self) -> Sequence[AnyCollective]:
        return [bucket.mean.collective for bucket in self._gradients.buckets]

    def _leave_at_once(self) -> int:
        return self._gradients.abort()

    # ------------------------------------------------------------------------------------------------ newcomers

    def _state(self) -> dict[str, Any]:
        own = {"steps": self._steps, "unsynchronized": self._unsynchronized, "buckets": self._fused()}
        return {**super()._state(), **own}

    def _fused(self) -> list[list[int]]:
        return self._gradients.fused(self.optimizer.param_groups)

    def _restore(self, state: dict[str, Any]) -> None:
        if state["buckets"] != self._fused():
            raise RuntimeError(
                f"{self._name}: expected the survivors' buckets of parameters, {state['buckets']}, got "
                f"{self._fused()}: a rank cannot replace a dead one after add_param_group or add_unfrozen"
            )
        super()._restore(state)
        self._steps, self._unsynchronized = state["steps"], state["unsynchronized"]
        self._gradients.repeats = self._unsynchronized is not None

    # ------------------------------------------------------------------------------------------------ checks

    def _check_trainable(self) -> None:
        for parameter in self._gradients.without_bucket(self.optimizer.param_groups):
            if parameter.requires_grad or parameter.grad is not None:
                what = "requires gradients" if parameter.requires_grad else "has a gradient that it does not require"
                raise RuntimeError(
                    f"parameter {self._name_of(parameter)} {what}, but is in no bucket: after "
                    "unfreezing, and before backward(), call add_unfrozen() on all ranks"
                )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False, so that `GradScaler.step` unscales `.grad`. Raise if `backward()` has contributed scaled gradients."""
        if self._gradients.on_their_way:
            raise RuntimeError(
                "GradScaler: backward() has contributed scaled gradients: call average_gradients() first, or make "
                "EagerOptimizer with overlap=False"
            )
        return False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients like the wrapped optimizer; drop unused averages, as when a GradScaler skips a step."""
        super().zero_grad(set_to_none=set_to_none)
        self._gradients.clear()

    def __repr__(self) -> str:
        memory = {"host": "", "device": " on a device", "staged": " staged through the host"}[self.memory]
        state = f"{len(self._gradients.buckets)} buckets{memory}{', closed' if self.closed else ''}"
        return f"EagerOptimizer({self.optimizer!r}, {self._arguments.policy!r}, {state})"
