"""Eager-SGD for PyTorch: an optimizer whose gradients are averaged by partial allreduces (eager-SGD, algorithm 2)."""

from __future__ import annotations

import contextlib
import hashlib
import operator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from ..buffers import checked_dtype
from ..communicator import Communicator
from ..config import checked_timeout
from ..deadline import Deadline
from ..errors import ClosedError
from ..operations import AVG
from ..partial import warn_of_discarded
from ..policies import Majority, Policy, Solo
from .buckets import Bucket, array_over, fused, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from .. import RoundInfo
    from ..partial import PartialAllreduce
    from ..typing import Array, Missed

__all__ = ["EagerOptimizer"]

MIB = 2**20
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class EagerOptimizer(torch.optim.Optimizer):
    """Any `torch.optim.Optimizer`, whose `step` uses gradients averaged over ranks without waiting for stragglers.

    Gradients are fused into buckets, each with a persistent partial allreduce. `backward()` contributes a bucket as
    soon as it has all its gradients; `step()` contributes the others, waits as the policy says, and lets the wrapped
    optimizer step with the averages in `.grad`. What a rank contributed too late goes into the next round.

    Made and closed by all ranks. As a context manager it is flushed and closed at the end (collective); if the block
    raises, it is closed at once, and a `RuntimeWarning` says what is discarded.

    Parameters
    ----------
    optimizer
        Anything but LBFGS, whose steps evaluate the model several times. Its parameters are in host memory.
    comm
        A `Communicator`, or an mpi4py communicator, for which one is made and closed with this optimizer.
    policy
        Who may start a round; see docs/semantics.md.
    missed
        What a rank that is behind is given: "latest", the newest result (eager-SGD: replicas drift apart, and
        `sync_every` brings them together), or "sum", all results that it missed.
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
        Seconds for each step, flush and synchronization. None: no limit.
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

    # torch.optim.Optimizer.__init__ is not called: parameters, state and hooks are those of the wrapped optimizer.

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator | MPI.Comm,
        policy: Policy = Majority(),  # noqa: B008 - immutable
        *,
        missed: Missed = "latest",
        average: Literal["world", "contributors"] = "world",
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
        self._buckets: list[Bucket] = []
        self._hooks: list[Any] = []
        self._closed = False
        self._begun = False  # a bucket of this step was contributed
        self._averaged = False  # `.grad` is what the next step is to use
        self._synchronizing = True  # no_sync is not in force
        self._steps = 0
        self._policy = policy
        self._sums = missed == "sum"
        self._average = average
        self._sync_every = sync_every
        self._overlap = overlap
        self._broadcast = broadcast
        self._bucket_bytes = bucket_bytes
        self._name = name
        self._options: dict[str, Any] = {"missed": missed, "max_staleness": max_staleness, "history": history}
        try:
            self._comm._agree("EagerOptimizer", lambda: self._checked(timeout))
            self._timeout = checked_timeout(timeout)
            self._add(_parameters(optimizer.param_groups))
        except BaseException:
            self._abandon()
            raise

    def _checked(self, timeout: float | None) -> _Arguments:
        if isinstance(self.optimizer, (torch.optim.LBFGS, EagerOptimizer)):
            raise TypeError(
                f"optimizer: {type(self.optimizer).__name__} is refused: expected one that uses each gradient once"
            )
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(self.optimizer).__name__}")
        if self._average not in ("world", "contributors"):
            raise ValueError(f"average: expected 'world' or 'contributors', got {self._average!r}")
        self._bucket_bytes = _positive("bucket_bytes", self._bucket_bytes)
        if self._sync_every is not None:
            self._sync_every = _positive("sync_every", self._sync_every)
        checked_timeout(timeout)
        parameters = _parameters(self.optimizer.param_groups)
        if not any(parameter.requires_grad for parameter in parameters):
            raise ValueError("optimizer: none of its parameters requires gradients")
        return _Arguments(
            _described(parameters),
            {
                "average": self._average,
                "bucket_bytes": self._bucket_bytes,
                "sync_every": self._sync_every,
                "broadcast": self._broadcast,
            },
        )

    # ------------------------------------------------------------------------------------------------ parameters

    def _add(self, parameters: Sequence[torch.Tensor]) -> None:
        """Make buckets of parameters, the last first: the order in which backward has their gradients."""
        if self._broadcast:
            self._give_those_of_rank_0(parameters)
        for group in fused((tensor for tensor in reversed(parameters) if tensor.requires_grad), self._bucket_bytes):
            bucket = Bucket(group, partial(self._allreduce_like, tensors=len(group)))
            self._buckets.append(bucket)
            for number, parameter in enumerate(bucket.parameters):
                hook = partial(self._on_gradient, bucket, number)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def _allreduce_like(self, array: Array, tensors: int) -> PartialAllreduce:
        return self._comm.partial_allreduce(
            array,
            op="SUM" if self._average == "world" else AVG,
            policy=self._policy,
            name=f"{self._name} bucket {len(self._buckets)} ({tensors} tensors)",
            **self._options,
        )

    @torch.no_grad()
    def _give_those_of_rank_0(self, parameters: Sequence[torch.Tensor]) -> None:
        for group in fused(parameters, self._bucket_bytes):
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            data = flat.view(torch.uint8)  # bytes plus zeros are the same bits, of any dtype
            if self._comm.rank != 0:
                data.zero_()
            self._comm.preduce(data.numpy(), range(self._comm.size), op="SUM", timeout=self._timeout)
            _scatter(flat, group)

    @torch.no_grad()
    def _average_parameters(self, deadline: Deadline) -> None:
        for bucket in self._buckets:
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket.parameters])
            self._comm.preduce(array_over(flat), range(self._comm.size), op=AVG, timeout=deadline.remaining())
            _scatter(flat, bucket.parameters)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimizer, and buckets for them; collective, between steps."""
        self._check_between_steps("add_param_group")
        self.flush()  # ranks wait for each other here: none may be needed in a bucket
        self.optimizer.add_param_group(param_group)
        added = _parameters(self.optimizer.param_groups[-1:])
        self._comm._agree("EagerOptimizer.add_param_group", lambda: _Arguments(_described(added), {}))
        self._add(added)

    def _name_of(self, parameter: torch.Tensor) -> str:
        for number, group in enumerate(self.optimizer.param_groups):
            for place, candidate in enumerate(group["params"]):
                if candidate is parameter:
                    names = group.get("param_names")
                    return repr(names[place]) if names else f"{place} of group {number}"
        return "that is not the optimizer's any more"

    # ------------------------------------------------------------------------------------------------ a step

    def _on_gradient(self, bucket: Bucket, number: int, parameter: torch.Tensor) -> None:
        """Count down a bucket: a hook that backward calls when a parameter has its gradient."""
        if parameter.grad is not None and parameter.grad.layout is not torch.strided:
            raise TypeError(
                f"parameter {self._name_of(parameter)} has a sparse gradient, which is not averaged: make its layer "
                "with sparse=False"
            )
        if not (self._synchronizing and self._overlap):
            return
        if not self._averaged:
            self._begin()
        if self._averaged or bucket.contributed:
            raise RuntimeError(
                "backward() a second time before step(): the gradients are on their way already. Run all but the last "
                "backward() of a step in `with optimizer.no_sync():`, or make EagerOptimizer with overlap=False"
            )
        if bucket.note_ready(number):
            with torch.no_grad():
                bucket.contribute()

    def _begin(self) -> None:
        if not self._begun:
            for bucket in self._buckets:
                bucket.begin()
            self._begun = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients accumulate: nothing is contributed by a `backward()` in this block, as with torch's DDP."""
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    @torch.no_grad()
    def average_gradients(self) -> None:
        """Contribute what is not yet, wait as the policy says, and put averages into `.grad`.

        `step()` does it. To be called before, by programs that change averaged gradients, such as by clipping; `step()`
        then only lets the wrapped optimizer step.

        Raises
        ------
        RuntimeError
            Gradients were changed after `backward()`; a parameter was not trainable when this optimizer was made.
        StallError
            Not done in time. To be called again: it goes on where it was.
        ClosedError
            After `close`.
        """
        self._check_open()
        self._check_trainable()
        if self._averaged:
            return
        self._begin()
        for bucket in self._buckets:
            if not bucket.contributed:
                bucket.contribute()
            elif (parameter := bucket.changed_since_contributed()) is not None:
                raise RuntimeError(
                    f"the gradient of parameter {self._name_of(parameter)} or its neighbours was changed after "
                    "backward() had contributed it: call average_gradients() before, or make EagerOptimizer with "
                    "overlap=False"
                )
        self._wait(Deadline(self._timeout))
        self._show_averages()
        self._begun = False
        self._averaged = True

    def _wait(self, deadline: Deadline) -> None:
        waiting = [bucket for bucket in self._buckets if bucket.must_wait()]
        for bucket in waiting:
            if not isinstance(self._policy, Solo):  # of which no round waits for anybody's arrival
                for other in self._buckets:
                    other.arrive_again()
            bucket.wait(deadline)

    def _show_averages(self) -> None:
        for bucket in self._buckets:
            bucket.show(self._comm.size if self._average == "world" else 1)

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
        self._averaged = False
        self._steps += 1
        if self._sync_every is not None and self._steps % self._sync_every == 0:
            self.synchronize_parameters()
        return loss

    def _evaluate(self, closure: Callable[[], float]) -> float:
        self._averaged = False
        loss = closure()
        self.average_gradients()
        return loss

    @property
    def rounds(self) -> tuple[RoundInfo, ...]:
        """What each bucket was told of its round in the last step; see `RoundInfo`."""
        return tuple(bucket.info for bucket in self._buckets if bucket.info is not None)

    @property
    def mean_staleness(self) -> float:
        """The mean over `rounds` of how many rounds this rank's gradients had waited."""
        return _mean([info.staleness for info in self.rounds])

    @property
    def mean_active(self) -> float:
        """The mean over `rounds` of how many ranks had fresh gradients."""
        return _mean([info.active for info in self.rounds])

    # ------------------------------------------------------------------------------------------------ all ranks

    def flush(self) -> None:
        """Deliver the gradients that still wait, of all ranks, and apply what this rank is owed; collective.

        Owed are, in one average: results that it has not been given (`missed="latest"`: some of them), and those of a
        last round with all gradients that wait. If there are any, the wrapped optimizer steps once with them. `.grad`
        is None afterwards.

        Raises
        ------
        RuntimeError
            After a `backward()` without `step()`.
        StallError
            Some ranks do not flush in time. To be called again.
        ClosedError
            After `close`.
        """
        self._check_between_steps("flush")
        self._flush(Deadline(self._timeout))

    @torch.no_grad()
    def _flush(self, deadline: Deadline) -> None:
        for bucket in self._buckets:
            bucket.start_flush()
        for bucket in self._buckets:
            bucket.flush(deadline, sums=self._sums)
        if any(bucket.given for bucket in self._buckets):
            self._show_averages()
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def synchronize_parameters(self) -> None:
        """Flush, and give every rank the mean of all ranks' parameters (eager-SGD, section 5); collective.

        The state of the wrapped optimizer, such as momentum, and buffers of the model stay each rank's own.

        Raises
        ------
        RuntimeError, StallError, ClosedError
            As `flush`.
        """
        self._check_between_steps("synchronize_parameters")
        deadline = Deadline(self._timeout)
        self._flush(deadline)
        self._average_parameters(deadline)

    def close(self) -> None:
        """Flush, and leave for good; collective. The wrapped optimizer and the model stay usable."""
        if self._closed:
            return
        self.flush()
        for bucket in self._buckets:
            bucket.allreduce.close()
        self._end()
        if self._owns_comm:
            self._comm.close()

    def _abandon(self) -> int:
        """Close at once, and wait for nobody; the number of contributions that are discarded."""
        discarded = sum(bucket.allreduce.abandon() for bucket in self._buckets)
        self._end()
        if self._owns_comm:
            self._comm.abandon()
        return discarded

    def _end(self) -> None:
        self._closed = True
        for hook in self._hooks:
            hook.remove()

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
        if kind is None:
            try:
                self.close()
            finally:
                if not self._closed:
                    self._abandon()
        elif not self._closed:
            warn_of_discarded(f"{self._name} was left by {kind.__name__}", self._abandon())

    # ------------------------------------------------------------------------------------------------ checks

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._name} is closed")

    def _check_between_steps(self, call: str) -> None:
        self._check_open()
        if self._begun or self._averaged:
            raise RuntimeError(f"{call}: gradients are on their way: call step() before")

    def _check_trainable(self) -> None:
        known = {id(parameter) for bucket in self._buckets for parameter in bucket.parameters}
        for parameter in _parameters(self.optimizer.param_groups):
            if parameter.requires_grad and id(parameter) not in known:
                raise RuntimeError(
                    f"parameter {self._name_of(parameter)} was frozen (requires_grad=False) when EagerOptimizer was "
                    "made, or was not there: let it require gradients before, or add it by add_param_group of "
                    "EagerOptimizer, on all ranks"
                )

    # ------------------------------------------------------------------------------------------------ delegation

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped optimizer's attribute: `param_groups`, `state`, `defaults`, hooks."""
        if name == "optimizer":
            raise AttributeError(name)  # not yet made
        return getattr(self.optimizer, name)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state: nothing of it is about communication. `flush` before."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state."""
        self.optimizer.load_state_dict(state_dict)

    def __repr__(self) -> str:
        """Show the wrapped optimizer and what averages its gradients."""
        state = ", closed" if self._closed else ""
        return f"EagerOptimizer({self.optimizer!r}, {self._policy!r}, {len(self._buckets)} buckets{state})"


@dataclass(frozen=True)
class _Arguments:
    """What must be the same on all ranks."""

    parameters: str
    options: dict[str, str | int | None]

    def signature(self) -> dict[str, str | int | None]:
        """See `agreement.Signed`."""
        return {"parameters": self.parameters, **self.options}


def _parameters(groups: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    return list(dict.fromkeys(parameter for group in groups for parameter in group["params"]))


def _described(parameters: Sequence[torch.Tensor]) -> str:
    """Check parameters; return their shapes and dtypes in words, shortened, with a hash of all."""
    for place, parameter in enumerate(parameters):
        if parameter.device.type != "cpu":
            raise TypeError(f"parameter {place}: expected host memory, got device {parameter.device}")
        if parameter.layout is not torch.strided:
            raise TypeError(f"parameter {place}: expected a dense tensor, got layout {parameter.layout}")
        if parameter.requires_grad and parameter.dtype not in DTYPES:
            names = ", ".join(_dtype_name(dtype) for dtype in DTYPES)
            raise TypeError(f"parameter {place}: expected one of {names}; got {_dtype_name(parameter.dtype)}")
        if parameter.requires_grad:
            checked_dtype(_dtype_name(parameter.dtype))  # bfloat16 needs ml_dtypes
    words = [
        f"{tuple(tensor.shape)} {_dtype_name(tensor.dtype)}{'' if tensor.requires_grad else ' frozen'}"
        for tensor in parameters
    ]
    text = f"{len(words)}: {', '.join(words)}"
    if len(text) <= 600:
        return text
    return f"{text[:600]}... (hash {hashlib.blake2b(text.encode(), digest_size=6).hexdigest()})"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _scatter(flat: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    for part, tensor in zip(parts_of(flat, parameters), parameters, strict=True):
        tensor.copy_(part)


def _positive(what: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an integer, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{what}: expected at least 1, got {number}")
    return number


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
