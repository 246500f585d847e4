"""Buckets: gradients fused into one flat buffer, each with a partial allreduce of its own; for `interop.torch`.

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._core import Round, RoundInfo
    from ..partial_allreduce.eager_mean import EagerMean
    from ..support.deadline import Deadline

    Make: TypeAlias = Callable[[torch.Tensor], EagerMean]

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

    `.grad` of each parameter is made a view of the buffer when the bucket is contributed; 16-bit gradients, which are
    added up in float32, are copied there and back. After `wait`, or `flush`, the buffer holds the sum of the means that
    this rank was given since `begin`. Behind the gradients it has a number for each: on how many ranks there was one.

    Attributes
    ----------
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
        count = sum(tensor.numel() for tensor in parameters)
        first = parameters[0]
        self.flat = torch.zeros(count + len(parameters), dtype=summed_in(first.dtype), device=first.device)
        self._views = parts_of(self.flat, parameters)
        self._present = self.flat[count:]
        self.mean = make(self.flat)
        self._zeros: torch.Tensor | None = None
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
        self._handed: list[tuple[torch.Tensor | None, int]] | None = None  # gradients, and their versions
        self._call: Round | None = None  # by which they were handed over
        self._given = 0  # results in the buffer
        self._behind = False  # this rank's newest data was not in the round that its call was given

    # ------------------------------------------------------------------------------------------------ contributing

    @property
    def contributed(self) -> bool:
        """Whether this step's gradients were handed over."""
        return self._handed is not None

    def note_ready(self, number: int) -> bool:
        """Note that a parameter has its gradient; whether all have."""
        self._ready.add(number)
        return len(self._ready) == self._expected

    def contribute(self) -> None:
        """Hand the gradients over; who has none counts as zeros."""
        self._had_one = [parameter.grad is not None and parameter.requires_grad for parameter in self.parameters]
        self._present.copy_(torch.tensor(self._had_one))
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is None or not parameter.requires_grad:
                view.zero_()
            elif parameter.grad is not view:
                view.copy_(parameter.grad)
                if parameter.dtype is view.dtype:
                    parameter.grad = view
        self._handed = [_with_version(parameter.grad) for parameter in self.parameters]
        self._call = self.mean.contribute(self.flat)
        self._calls.append(self._call)
        self.late, self.missed = True, 0  # unless this step takes its result

    def changed_since_contributed(self) -> torch.Tensor | None:
        """Return a parameter whose gradient is not the one that was handed over."""
        assert self._handed is not None
        for parameter, (gradient, version) in zip(self.parameters, self._handed, strict=True):
            if parameter.grad is not gradient:
                return parameter
            if gradient is not None and gradient._version != version and not self._given:
                return parameter
        return None

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
            if self._zeros is None:
                self._zeros = torch.zeros_like(self.flat)
            self._calls.append(self.mean.contribute(self._zeros))
            self._behind = False
            self._await_handover()
            self._take_done()

    def wait(self, deadline: Deadline) -> None:
        """Wait for this rank's calls, and add their results up."""
        while self._calls:
            self._calls[0].wait(deadline.remaining())  # a call that runs into its limit stays
            self._take(self._calls.popleft())

    def _await_handover(self) -> None:
        """Wait until this rank's calls have rounds; on the host they have."""
        if self._calls:
            _ = self._calls[-1].late

    def _take_done(self) -> None:
        while self._calls and self._calls[0].test():
            self._take(self._calls.popleft())

    def _take(self, call: Round) -> None:
        late = call.late
        self.info = call.wait(0.0)
        self._behind = late or not self.info.included
        if call is self._call:
            self.late, self.missed = not self.info.included, self.info.missed
        if self.info.round > self._newest:  # else an earlier call was given it already
            self._newest = self.info.round
            self._add_result()

    def _add_result(self) -> None:
        if self._given == 0:
            self.mean.write_to(self.flat)
        else:
            self.mean.add_to(self.flat)
        self._given += 1

    # ------------------------------------------------------------------------------------------------ leaving

    def start_flush(self) -> None:
        """Leave, so that no rank waits for this one, and take the results that are there."""
        for parameter in self.parameters:
            parameter.grad = None  # results are added up in the buffer until the flush ends: let it have no views
        self.begin()
        self._take_done()
        self.mean.start_flush()
        self._leaving = True

    def flush(self, deadline: Deadline) -> None:
        """Wait until all ranks flush, and add up what this rank is owed."""
        if not self._leaving:
            return  # it is through; a flush of another bucket ran into its time limit
        owed = self.mean.flush(deadline.remaining())
        self._leaving = False
        self._calls.clear()
        if owed:
            self._add_result()

    # ------------------------------------------------------------------------------------------------ results

    @property
    def given(self) -> bool:
        """Whether the buffer holds a result."""
        return self._given > 0

    def show(self) -> None:
        """Let `.grad` be the averages.

        None, so that optimizers leave them alone, for frozen parameters, and where no rank had a gradient.
        """
        if self.given:
            has_one = self._present.gt(0).tolist()
        else:
            self.flat.zero_()
            has_one = self._had_one  # what this rank knows
        for parameter, view, present in zip(self.parameters, self._views, has_one, strict=True):
            gradient = view.to(parameter.dtype) if parameter.requires_grad and present else None
            if parameter.grad is not gradient:
                parameter.grad = gradient


def _with_version(gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, int]:
    return gradient, 0 if gradient is None else gradient._version
