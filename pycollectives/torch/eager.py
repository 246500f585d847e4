"""Eager-SGD for PyTorch: an optimizer whose gradients are averaged by partial allreduces (eager-SGD, algorithm 2)."""

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

    from ..communicator import Communicator
    from ..context import AnyCollective
    from ..partial_allreduce.eager_mean import DivideBy
    from ..support.typing import Missed
    from .deadlock_guard import Waits
    from .means import TensorMean

__all__ = ["EagerOptimizer"]

MIB = 2**20


class EagerOptimizer(StepStatistics, CollectiveOptimizer):
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
        Anything but LBFGS, whose steps evaluate the model several times. Its parameters are in host memory, or on one
        CUDA device: move the model there before.
    comm
        A `Communicator`, or an mpi4py communicator, for which one is made and closed with this optimizer.
    policy
        Who may start a round: an object such as `Quorum(2)`, or its text, such as "quorum:2". Default: half of the
        ranks, once they have arrived. See docs/semantics.md.
    missed
        What a rank that is behind is given: "sum", all results that it missed, or "latest", the newest alone
        (eager-SGD: replicas drift apart, and `sync_every` brings them together).
    divide_by
        Divide a sum of gradients by the size of the communicator ("world"; eager-SGD), or by the number of ranks that
        are in the round ("contributors").
    bucket_bytes
        A bucket is closed when it has so many.
    sync_every
        Call `synchronize_parameters` after so many steps, of which all ranks make equally many then. None: never.
    overlap
        Contribute during `backward()`. False: not before `step()`, so that gradients may be changed until then, and
        accumulate over several `backward()` without `no_sync`.
    model
        Whose buffers, such as running statistics, and other parameters are broadcast too, and whose buffers `finish`
        averages. None: there are none, or they stay each rank's own.
    broadcast
        Give all ranks the parameters of rank 0 at first.
    broadcast_state
        Give them rank 0's buffers of `model` too, and the state and hyperparameters of the wrapped optimizer, such as
        momentum and learning rates: a checkpoint may be loaded on rank 0 alone. None: as `broadcast`.
    max_staleness, history
        As for `Communicator.partial_allreduce`.
    staged
        Copy gradients on a CUDA device through pinned memory of the host. None: if the partial allreduce cannot take
        them on the device; then a `RuntimeWarning` of rank 0 says why. False: that is an error. See `memory`.
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
        broadcast: bool = True,
        broadcast_state: bool | None = None,
        max_staleness: int | None = None,
        history: int = 8,
        staged: bool | None = None,
        timeout: float | None = None,
        name: str = "EagerOptimizer",
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
        """Warn that a late rank takes one step with the sum of several averages, where others take several steps."""
        apart = self._arguments.sync_every is None and not isinstance(self._arguments.policy, Full)
        if apart and is_adaptive(self.optimizer) and self._comm.size > 1 and self._comm.rank == 0:
            warnings.warn(
                f"{self._name}: with {type(self.optimizer).__name__}, parameters differ between ranks, also after a "
                f"flush, where a rank was late. Pass sync_every=N, which averages them every N steps, or policy='full'",
                RuntimeWarning,
                stacklevel=3,
            )

    @property
    def memory(self) -> Literal["host", "device", "staged"]:
        """What the partial allreduce works on: gradients in memory of the "host", on their "device", or "staged"."""
        return self._arguments.memory

    def _make_mean(self, name: str, like: torch.Tensor) -> TensorMean:
        return self._arguments.make_mean(self._comm, f"{self._name} {name}", like)

    # ------------------------------------------------------------------------------------------------ parameters

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
        deadline = Deadline(self._timeout)
        self._flush(deadline)  # ranks wait for each other here: none may be needed in a bucket
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
        ValueError
            The model was given to `DistributedDataParallel` after this optimizer was made.
        StallError
            Not done in time. To be called again: it goes on where it was.
        ClosedError
            This rank has left.
        """
        self._check_open()
        self._look_for_ddp()
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
        if self._unsynchronized is not None:  # the last step ran into its time limit there
            (loss,) = self._unsynchronized
            self._flush(Deadline(self._timeout))
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
            self._flush(Deadline(self._timeout))
        return loss

    def _evaluate(self, closure: Callable[[], float]) -> float:
        if self._evaluated is None or not self._gradients.on_their_way:  # else this step ran into its time limit
            self._gradients.end_step()
            self._evaluated = (closure(),)
        (loss,) = self._evaluated
        self.average_gradients()
        return loss

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self, *, timeout: float | None = None) -> None:
        """Deliver the gradients that still wait, of all ranks, and apply what this rank is owed; collective.

        Owed are, in one average: results that it has not been given (`missed="latest"`: some of them), and those of a
        last round with all gradients that wait. If there are any, the wrapped optimizer steps once with them. `.grad`
        is afterwards as it was before, for the next step. Other optimizers of this thread and `Communicator` that may
        wait are flushed with it.

        Parameters
        ----------
        timeout
            Seconds; None for this optimizer's, `math.inf` for no limit.

        Raises
        ------
        RuntimeError
            Gradients are on their way, or averages wait, for a `step()`.
        StallError
            Some ranks do not flush in time. To be called again: it goes on where it was, and is to be through before
            the next gradients.
        ClosedError
            This rank has left.
        """
        super().flush(timeout=timeout)

    def _check_no_step_under_way(self, call: str) -> None:
        if self._gradients.on_their_way:
            raise RuntimeError(f"{call}: gradients of {self._name} are on their way: call step() before, or abort()")
        if self._gradients.averaged:
            raise RuntimeError(f"{call}: averages of {self._name} wait: call step(), or zero_grad() to drop them")

    @property
    def _flushing(self) -> bool:
        return self._gradients.flushing

    def _start_flush(self) -> None:
        self._gradients.start_flush()

    def _wait_for_flush(self, deadline: Deadline) -> None:
        self._gradients.flush(deadline)

    def _end_flush(self) -> None:
        self._gradients.end_flush(self.optimizer.param_groups, self.optimizer.step)

    def _flush(self, deadline: Deadline) -> None:
        super()._flush(deadline)
        if self._unsynchronized is not None:
            self._synchronize_flushed(deadline)
            self._unsynchronized = None

    def _average_parameters(self, deadline: Deadline) -> None:
        for bucket in self._gradients.buckets:
            replicas.average(self._comm, bucket.parameters, deadline)

    def _end_step(self) -> None:
        self._gradients.drop()

    def _leave(self) -> None:
        self._gradients.leave()

    def _collectives(self) -> Sequence[AnyCollective]:
        return [bucket.mean.collective for bucket in self._gradients.buckets]

    def _leave_at_once(self) -> int:
        return self._gradients.abort()

    # ------------------------------------------------------------------------------------------------ checks

    def _check_trainable(self) -> None:
        for parameter in self._gradients.without_bucket(self.optimizer.param_groups):
            if parameter.requires_grad or parameter.grad is not None:
                what = "requires gradients" if parameter.requires_grad else "has a gradient and requires none"
                raise RuntimeError(
                    f"parameter {self._name_of(parameter)} {what}, and did not, or was not there, when "
                    "buckets were made: after unfreezing, and before backward(), call add_unfrozen() on all ranks"
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
        super().zero_grad(set_to_none=set_to_none)
        self._gradients.clear()

    def __repr__(self) -> str:
        """Show the wrapped optimizer and what averages its gradients."""
        memory = {"host": "", "device": " on a device", "staged": " staged through the host"}[self.memory]
        state = f"{len(self._gradients.buckets)} buckets{memory}{', closed' if self.closed else ''}"
        return f"EagerOptimizer({self.optimizer!r}, {self._arguments.policy!r}, {state})"
