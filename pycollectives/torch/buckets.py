"""Buckets: gradients fused into one flat buffer, each with a partial allreduce of its own; for `EagerOptimizer`.

A step begins with the first contribution to any bucket. Its calls may be late in some buckets and in time in others,
and a late call is no arrival. If every rank just waited for the calls that were in time, two ranks could wait for each
other for ever, each in a bucket in which the other was late. So:

- A rank that waits in one bucket has arrived in all others since its step began: where its data was not taken into the
  round that its call was given, it arrives again, with zeros, which adds nothing to its data that waits there.
- It waits only for rounds whose predecessors had all completed when its step began. An arrival of an earlier step may
  have been taken meanwhile; then the new one stands for the round after, and is taken note of in the next step.

Why that suffices: let rank i wait in bucket X for round x, and rank j be needed there, but wait elsewhere. Then j has
arrived in X since its step began and its data was taken, by a round before x. That round completed after j's step began
and before i's step did. So j's step is older than i's; and whom j waits for is in an older step still. As ranks are
finite, somebody waits for nobody. A rank that flushes has left all buckets before it waits in any.

A contribution on a device is handed over when a stream has made it, and may turn out to be late then. So a rank lets
all be handed over before it looks which it waits for: that needs no other rank.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, TypeAlias

import torch

from .memory import first_difference, increment_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._core import Round, RoundInfo
    from ..support.deadline import Deadline
    from .means import TensorMean

    Make: TypeAlias = Callable[[torch.Tensor], TensorMean]

__all__ = ["Bucket", "fused", "parts_of", "summed_in"]


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which gradients of one type are added up: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def fused(
    tensors: Iterable[torch.Tensor], limit: int, dtype_of: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype
) -> Iterator[list[torch.Tensor]]:
    """Group tensors in their order, until a group has about `limit` bytes; one tensor may be longer.

    Those of a group have one type, or, with `dtype_of`, types that go into one buffer of the type that it returns.
    """
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    sizes: Counter[torch.dtype] = Counter()
    for tensor in tensors:
        dtype = dtype_of(tensor.dtype)
        groups.setdefault(dtype, []).append(tensor)
        sizes[dtype] += tensor.numel() * dtype.itemsize
        if sizes[dtype] >= limit:
            yield groups.pop(dtype)
            sizes[dtype] = 0
    yield from groups.values()


def parts_of(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of a flat tensor, one behind the other, with the shapes of tensors."""
    ends = itertools.accumulate((tensor.numel() for tensor in tensors), initial=0)
    return [flat[end : end + tensor.numel()].view(tensor.shape) for end, tensor in zip(ends, tensors, strict=False)]


class Bucket:
    """The gradients of some parameters, one behind the other in one buffer, and the mean of them over ranks.

    The buffer is this bucket's own: `contribute` copies what stands in `.grad` there, and `write` copies averages from
    the mean into `.grad`, whose tensors stay the program's, with their strides. So the program can do with them what it
    likes, and `changed_since_contributed` finds out by the bits whether it did. 16-bit gradients are added up in
    float32. Behind the gradients the buffer has a number for each: on how many ranks there was one.

    After `wait`, or `flush`, the bucket has the sum of the means that this rank was given since `begin`.

    Attributes
    ----------
    parts
        Where the buffer has the gradient of each parameter.
    info
        Of the newest round that a call was given.
    late
        Whether the newest gradients are not in the round that their step was given, because they came too late.
    missed
        Rounds that had completed unseen before that one.
    graph_task
        The backward pass whose hook contributed it; -1: none did.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], make: Make) -> None:
        """Fuse gradients `summed_in` one type, where they are; `make` creates the mean for the buffer."""
        self.parameters = tuple(parameters)
        first = parameters[0]
        self._starts = list(itertools.accumulate((tensor.numel() for tensor in parameters), initial=0))
        count = self._starts[-1]
        self.flat = torch.zeros(count + len(parameters), dtype=summed_in(first.dtype), device=first.device)
        self.parts = parts_of(self.flat, parameters)
        self._present = self.flat[count:]
        self.mean = make(self.flat)
        self._zeros: torch.Tensor | None = None
        self._total: torch.Tensor | None = None  # results added up
        self._calls: deque[Round] = deque()  # arrivals that stand for a round, oldest first
        self._newest = -1  # round that this rank was given
        self._leaving = False
        self._had_one = [False] * len(parameters)  # a gradient of this rank's, when it contributed last
        self.info: RoundInfo | None = None
        self.late, self.missed = False, 0
        self.begin()

    def begin(self) -> None:
        """Begin a step: nothing of it is contributed yet, or was given."""
        self._armed = self.mean.rounds  # the first round that has not completed
        self._ready: set[int] = set()
        self.graph_task = -1
        self._expected = sum(tensor.requires_grad for tensor in self.parameters)
        self.contributed = False  # this step's gradients were handed over
        self._call: Round | None = None  # by which they were handed over
        self._given = 0  # results since then
        self._unread = False  # the only one is where the mean has it, until this rank's next call
        self._behind = False  # this rank's newest data was not in the round that its call was given

    # ------------------------------------------------------------------------------------------------ contributing

    def note_ready(self, number: int) -> bool:
        """Note that a parameter has its gradient; whether all have."""
        self._ready.add(number)
        return len(self._ready) == self._expected

    def forget_ready(self) -> None:
        """Reset the count of ready gradients after a skipped step, which has dropped them."""
        if not self.contributed:
            self._ready.clear()

    def gradients(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return the parameters that have gradients, each with its gradient and its part of the buffer."""
        every = ((parameter, parameter.grad, part) for parameter, part in zip(self.parameters, self.parts, strict=True))
        return [(parameter, gradient, part) for parameter, gradient, part in every if gradient is not None]

    @torch.profiler.record_function("pycollectives: contribute gradients")
    def contribute(self) -> None:
        """Hand the gradients over; who has none counts as zeros."""
        gradients = [parameter.grad for parameter in self.parameters]
        self._had_one = [gradient is not None for gradient in gradients]
        self._present.copy_(torch.tensor(self._had_one))
        for gradient, part in zip(gradients, self.parts, strict=True):
            if gradient is None:
                part.zero_()
            else:
                part.copy_(gradient)
        self._call = self.mean.contribute(self.flat)
        self._calls.append(self._call)
        self.contributed = True
        self.late, self.missed = True, 0  # unless this step takes its result

    def changed_since_contributed(self) -> torch.Tensor | None:
        """Return a parameter whose gradient is not, to the bit, the one that was handed over."""
        for parameter, had_one in zip(self.parameters, self._had_one, strict=True):
            if (parameter.grad is not None) != had_one:
                return parameter
        standing = self.gradients()
        place = first_difference([(gradient, part) for _, gradient, part in standing])
        return None if place is None else standing[place][0]

    # ------------------------------------------------------------------------------------------------ waiting

    def must_wait(self) -> bool:
        """Take the results that are there; whether this step's is still to be waited for."""
        self._await_handover()
        round_of_call = self.mean.rounds  # if the call is not done afterwards
        self._take_done()
        return bool(self._calls) and round_of_call <= self._armed

    def arrive_again(self) -> None:
        """Arrive in the round that will take this rank's data, if its call was late for the one that it was given."""
        while self._behind:
            self._keep_result()
            if self._zeros is None:
                self._zeros = torch.zeros_like(self.flat)
            self._calls.append(self.mean.contribute(self._zeros))
            self._behind = False
            self._await_handover()
            self._take_done()

    def wait(self, deadline: Deadline) -> None:
        """Wait for this rank's calls, and add their results up."""
        while self._calls:
            self._keep_result()
            self._calls[0].wait(timeout=deadline.remaining())  # a call that runs into its limit stays
            self._take(self._calls.popleft())

    def _await_handover(self) -> None:
        """Wait until this rank's calls have rounds; on the host they have."""
        if self._calls:
            _ = self._calls[-1].late

    def _take_done(self) -> None:
        while self._calls:
            self._keep_result()
            if not self._calls[0].test():
                return
            self._take(self._calls.popleft())

    def _take(self, call: Round) -> None:
        late = call.late
        self.info = call.wait(timeout=0.0)
        self._behind = late or not self.info.included
        if call is self._call:
            self.late, self.missed = not self.info.included, self.info.missed
        if self.info.round > self._newest:  # else an earlier call was given it already
            self._newest = self.info.round
            self._add_result()

    def _add_result(self) -> None:
        if self._given == 0:
            self._unread = True
        else:
            assert self._total is not None
            self.mean.add_to(self._total)
        self._given += 1

    def _keep_result(self) -> None:
        """Copy the result that the mean has: this rank's next call may replace it."""
        if self._unread:
            if self._total is None:
                self._total = torch.empty_like(self.flat)
            self.mean.write_to(self._total)
            self._unread = False

    # ------------------------------------------------------------------------------------------------ leaving

    def start_flush(self) -> None:
        """Leave, so that no rank waits for this one, and take the results that are there."""
        self.begin()
        self._take_done()
        self._keep_result()
        self.mean.start_flush()
        self._leaving = True

    def flush(self, deadline: Deadline) -> None:
        """Wait until all ranks flush, and add up what this rank is owed."""
        if not self._leaving:
            return  # it is through; a flush of another bucket ran into its time limit
        owed = self.mean.flush(timeout=deadline.remaining())
        self._leaving = False
        self._calls.clear()
        if owed:
            self._add_result()

    # ------------------------------------------------------------------------------------------------ results

    @property
    def given(self) -> bool:
        """Whether there is a result."""
        return self._given > 0

    def show(self, keep: Callable[[torch.Tensor], bool]) -> None:
        """Let `.grad` be the averages: in the memory of the gradient that is there, if `keep` says so, or in new one.

        None, so that optimizers leave them alone, where no rank had a gradient.
        """
        outs = []
        for number, (parameter, present) in enumerate(zip(self.parameters, self._has_one(), strict=True)):
            gradient = parameter.grad
            if not present:
                parameter.grad = None
                continue
            if gradient is None or not keep(gradient):
                parameter.grad = gradient = _new_gradient(parameter)
            outs.append((self._starts[number], gradient))
        self._write(outs)

    def average_of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return what `show` wrote, in memory of its own; None: no rank had a gradient."""
        number = next(place for place, one in enumerate(self.parameters) if one is parameter)
        if not self._has_one()[number]:
            return None
        average = _new_gradient(parameter)
        self._write([(self._starts[number], average)])
        return average

    def _has_one(self) -> list[bool]:
        """Which gradients some rank had, as far as this one knows."""
        if not self.given:
            return self._had_one
        present = torch.empty_like(self._present)
        self._write([(self._starts[-1], present)])
        has_one: list[bool] = present.gt(0).tolist()
        return has_one

    def _write(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Write the averages from places of the buffer on into tensors of any strides."""
        if self._unread:
            self.mean.write_parts(outs)
            for _, out in outs:
                increment_version(out)  # it was written behind PyTorch's back
            return
        for start, out in outs:
            if self.given:
                assert self._total is not None
                out.copy_(self._total[start : start + out.numel()].view(out.shape))
            else:
                out.zero_()


def _new_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Return memory for a gradient, of the type that PyTorch asks of it."""
    return torch.empty_like(parameter, dtype=getattr(parameter, "grad_dtype", None) or parameter.dtype)
