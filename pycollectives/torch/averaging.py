"""Average gradients over ranks, step by step and bucket by bucket; for `EagerOptimizer`."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .buckets import Bucket, fused, summed_in
from .checkpoints import graph_task, in_reentrant_checkpoint
from .memory import OwnMemory, same_bits, why_not_averaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .._core import RoundInfo
    from ..partial_allreduce.recovery import Unused
    from ..support.deadline import Deadline
    from .means import TensorMean

UNUSED = (
    "backward() after average_gradients(), whose averages no step() has used: call step() first, or drop them with "
    "this optimizer's zero_grad(); the model's zero_grad() does not drop them"
)


class GradientAverager:
    """The buckets of an optimizer's gradients, and the state of its step.

    A step begins when a bucket is contributed: by `backward()`, whose hooks count the missing gradients of a bucket, or
    by `average`. Afterwards `.grad` holds averages, until `end_step` or `drop`.

    `average` averages the contents of `.grad`, of any origin. If a hook has already contributed them, `average`
    compares the bits and raises if they differ. Afterwards the program may change `.grad` in place.

    `make` creates a named mean over ranks for a buffer (collective). If `overlap` is True, hooks contribute during
    `backward()`. After the communicator has closed (`is_open`), hooks do nothing.
    """

    def __init__(
        self,
        make: Callable[[str, torch.Tensor], TensorMean],
        *,
        overlap: bool,
        name_of: Callable[[torch.Tensor], str],
        is_open: Callable[[], bool],
    ) -> None:
        self.buckets: list[Bucket] = []
        self._make = make
        self._overlap = overlap
        self._name_of = name_of
        self._is_open = is_open
        self._hooks: list[Any] = []
        self._with_bucket: set[int] = set()  # identities of parameters
        self._begun = False  # a bucket of this step has been contributed
        self._averaged = False  # `.grad` holds the averages for the next step
        self._shown: list[tuple[Bucket, torch.Tensor, torch.Tensor | None]] = []  # parameters and their averages
        self._mixed = False  # backward has added gradients to averages
        self._synchronizing = True  # False in a `no_sync` block
        self.flushing = False  # between start_flush and end_flush
        self.repeats = False  # on a rank that replaces a dead one: the donor's parameters contain this step already
        self._set_aside: list[tuple[torch.Tensor, torch.Tensor | None]] = []  # contents of `.grad` during a flush

    def add(self, parameters: Sequence[torch.Tensor], bucket_bytes: int) -> None:
        """Make buckets of parameters, last parameter first, which is the order of `backward()`; collective."""
        trainable = [parameter for parameter in reversed(parameters) if parameter.requires_grad]
        for group in fused(trainable, bucket_bytes, summed_in):
            name = f"bucket {len(self.buckets)} ({len(group)} tensors)"
            bucket = Bucket(group, partial(self._make, name))
            bucket.mean.show_unused(partial(self._unused, bucket))
            self.buckets.append(bucket)
            self._with_bucket.update(map(id, bucket.parameters))
            for number, parameter in enumerate(bucket.parameters):
                hook = partial(self._on_gradient, bucket, number)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def without_bucket(self, groups: Iterable[Mapping[str, Any]]) -> list[torch.Tensor]:
        """Return the parameters in `groups` that are in no bucket."""
        every = (parameter for group in groups for parameter in group["params"])
        return [parameter for parameter in every if id(parameter) not in self._with_bucket]

    @property
    def on_their_way(self) -> bool:
        """Whether gradients are contributed but not averaged yet."""
        return self._begun

    @property
    def averaged(self) -> bool:
        """Whether `.grad` holds unused averages."""
        return self._averaged

    def _unused(self, bucket: Bucket) -> Unused | None:
        """Return the results of a bucket that no step has used."""
        is_under_way = self._begun or self._averaged or self.flushing
        return bucket.unused(flushing=self.flushing) if is_under_way else None

    def fused(self, groups: Iterable[Mapping[str, Any]]) -> list[list[int]]:
        """Return the numbers of each bucket's parameters, counted over all parameter groups."""
        numbers = {id(each): number for number, each in enumerate(p for group in groups for p in group["params"])}
        return [[numbers[id(parameter)] for parameter in bucket.parameters] for bucket in self.buckets]

    @property
    def rounds(self) -> tuple[RoundInfo, ...]:
        """The `RoundInfo` of each bucket's newest round."""
        return tuple(bucket.info for bucket in self.buckets if bucket.info is not None)

    # ------------------------------------------------------------------------------------------------ backward

    @torch.compiler.disable
    def _on_gradient(self, bucket: Bucket, number: int, parameter: torch.Tensor) -> None:
        """Count a ready gradient, and contribute its bucket once complete. `backward()` calls this hook."""
        if not self._is_open():
            self._remove_hooks()
            return
        self._check_not_flushing()
        if self.repeats:
            return
        if not (self._synchronizing and self._overlap):
            self._mixed = self._averaged
            return
        if self._averaged:
            raise RuntimeError(UNUSED)
        self._check_gradient(parameter, parameter if parameter.grad is None else parameter.grad, bucket.parts[number])
        self._begin()
        if bucket.contributed:
            raise RuntimeError(self._why_again(bucket, parameter))
        if bucket.note_ready(number):
            bucket.graph_task = graph_task()
            with torch.no_grad():
                bucket.contribute()

    def _why_again(self, bucket: Bucket, parameter: torch.Tensor) -> str:
        """Return the error text for a gradient whose bucket was already contributed."""
        if in_reentrant_checkpoint(since=bucket.graph_task):
            return (
                f"parameter {self._name_of(parameter)} gets its gradient in parts, by a reentrant checkpoint, and "
                "backward() has already contributed the first part: call torch.utils.checkpoint.checkpoint with "
                "use_reentrant=False, or make EagerOptimizer with overlap=False"
            )
        return (
            "backward() a second time before step(): the gradients are already on their way. Run all but the last "
            "backward() of a step in `with optimizer.no_sync():`, or make EagerOptimizer with overlap=False"
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients: a `backward()` in this block contributes nothing."""
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    # ------------------------------------------------------------------------------------------------ a step

    def _check_not_flushing(self) -> None:
        if self.flushing:
            raise RuntimeError("a flush reached its time limit: call flush() again before backward() or step()")

    def _begin(self) -> None:
        self._check_not_flushing()
        if not self._begun:
            for bucket in self.buckets:
                bucket.begin()
            self._begun = True

    def _check_gradients(self) -> None:
        for bucket in self.buckets:
            for parameter, part in zip(bucket.parameters, bucket.parts, strict=True):
                self._check_gradient(parameter, parameter if parameter.grad is None else parameter.grad, part)

    def _check_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor, part: torch.Tensor) -> None:
        """Raise an error if a gradient, or its parameter, does not fit its part of the bucket."""
        if (why_not := why_not_averaged(gradient, part)) is not None:
            raise TypeError(f"the gradient of parameter {self._name_of(parameter)} is not averaged: {why_not}")

    def _check_unchanged(self, bucket: Bucket) -> None:
        """Refuse gradients that have changed since they were contributed."""
        if (parameter := bucket.changed_since_contributed()) is not None:
            raise RuntimeError(
                f"the gradient of parameter {self._name_of(parameter)} was changed after backward(), or a "
                "step() that reached its time limit, had contributed it: call average_gradients() before such a "
                "change, or make EagerOptimizer with overlap=False. This step cannot continue: call abort() on all "
                "ranks"
            )

    @torch.no_grad()
    def average(self, deadline: Deadline) -> None:
        """Contribute the remaining gradients, wait as the policy requires, and write the averages to `.grad`."""
        if self._averaged:
            self._check_averages()
            return
        self._check_gradients()
        self._begin()
        before = [bucket for bucket in self.buckets if bucket.contributed]
        for bucket in self.buckets:
            if not bucket.contributed:
                bucket.contribute()
        for bucket in before:  # overlaps the communication of the others
            self._check_unchanged(bucket)
        self._wait(deadline)
        self._show()
        self._begun = False
        self._averaged = True

    def _show(self) -> None:
        own = OwnMemory(self._parameters())
        for bucket in self.buckets:
            bucket.show(own.__contains__)
        self._shown = [
            (bucket, parameter, None if parameter.grad is None else parameter.grad.detach())
            for bucket in self.buckets
            for parameter in bucket.parameters
        ]

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (parameter for bucket in self.buckets for parameter in bucket.parameters)

    def _check_averages(self) -> None:
        """Refuse gradients that replace averages; the program may change averages in place or set them to None."""
        if self._mixed:
            raise RuntimeError(UNUSED)
        for bucket, parameter, shown in self._shown:
            gradient = parameter.grad
            if gradient is None or (shown is not None and gradient.data_ptr() == shown.data_ptr()):
                continue
            average = bucket.average_of(parameter)
            if average is None or not same_bits(gradient, average):
                raise RuntimeError(
                    f"the gradient of parameter {self._name_of(parameter)} was replaced after average_gradients(): "
                    "change averages in place, such as with copy_(), or drop them with this optimizer's zero_grad() "
                    "before the next gradients"
                )

    @torch.profiler.record_function("pycollectives: wait for averages")
    def _wait(self, deadline: Deadline) -> None:
        waiting = [bucket for bucket in self.buckets if bucket.must_wait()]
        for bucket in waiting:
            if bucket.mean.waits_for_arrivals:
                for other in self.buckets:
                    other.arrive_again()
            bucket.wait(deadline)

    def end_step(self) -> None:
        """End the step: averages are used or dropped, and the next gradients belong to the next step."""
        self._averaged = self._mixed = False
        self._shown = []

    def clear(self) -> None:
        """Forget the contents of `.grad`, which has been cleared."""
        self.end_step()
        for bucket in self.buckets:
            bucket.forget_ready()
        self._set_aside = [(parameter, None) for parameter, _ in self._set_aside]

    def drop(self) -> None:
        """Drop averages that no step has used."""
        if self._averaged:
            for _, parameter, _ in self._shown:
                parameter.grad = None
        self.end_step()

    # ------------------------------------------------------------------------------------------------ all ranks

    @torch.no_grad()
    def begin_flush(self) -> None:
        """Begin a flush: call `start_flush`, `flush` and `end_flush` next. After a timeout, call all of them again."""
        if not self.flushing:
            self._set_aside = _take_gradients(self._parameters())
            for bucket in self.buckets:
                bucket.begin_flush()
            self.flushing = True

    @torch.no_grad()
    def start_flush(self) -> None:
        """Leave all buckets, so that no rank waits for this one."""
        for bucket in self.buckets:
            bucket.start_flush()

    @torch.no_grad()
    def flush(self, deadline: Deadline) -> None:
        """Deliver all pending gradients; collective."""
        for bucket in self.buckets:
            bucket.flush(deadline)

    def end_flush(self, groups: Iterable[Mapping[str, Any]], step: Callable[[], Any]) -> None:
        """Take a step with this rank's outstanding averages, if any.

        Call this after all optimizers that flush together have delivered their pending data. Gradients that were in
        `.grad` before the flush are restored, for the program's next step.
        """
        self.flushing = False
        try:
            if any(bucket.given for bucket in self.buckets):
                self._set_aside += _take_gradients(self.without_bucket(groups))
                with torch.no_grad():
                    for bucket in self.buckets:
                        bucket.show(lambda _: False)
                step()
        finally:
            self._put_back()

    def _put_back(self) -> None:
        for parameter, gradient in self._set_aside:
            parameter.grad = gradient
        self._set_aside = []

    def leave(self) -> None:
        """Leave the means of all buckets without waiting, even if one raises."""
        self._remove_hooks()
        with contextlib.ExitStack() as stack:
            for bucket in reversed(self.buckets):
                stack.callback(bucket.mean.leave)
                bucket.mean.show_unused(_nothing)

    def abort(self) -> int:
        """Abort the means of all buckets, even if one raises; return the number of discarded contributions."""
        self._remove_hooks()
        self._put_back()
        discarded: list[int] = []
        with contextlib.ExitStack() as stack:
            for bucket in reversed(self.buckets):
                stack.callback(lambda mean: discarded.append(mean.abort()), bucket.mean)
                bucket.mean.show_unused(_nothing)
        return sum(discarded)

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _nothing() -> None:
    """Return None, for a mean without unused results."""


def _take_gradients(parameters: Iterable[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Remove the gradients from parameters; return the parameters with their gradients."""
    taken = [(parameter, parameter.grad) for parameter in parameters]
    for parameter, _ in taken:
        parameter.grad = None
    return taken
