"""Buckets: gradients fused into one flat buffer, each with its own partial allreduce; for `EagerOptimizer`.

A step begins with the first contribution to any bucket. The step's calls may be late in some buckets and in time in
others, and a late call does not count as an arrival. Two rules prevent a deadlock in which two ranks wait for each
other, each in a bucket where the other was late:

- A rank that waits in one bucket has arrived in all others since its step began. If its call returned a round without
  its data, it arrives again with zeros, which leave its pending data unchanged.
- A rank waits only for rounds whose predecessors had all completed when its step began. If a round has already taken an
  arrival from an earlier step, the new arrival counts for the following round, and the next step handles it.

Proof: let rank i wait in bucket X for round x. Let rank j be needed there, but wait in another bucket. Rank j has
arrived in X since its step began, and a round before x took its data. That round completed after j's step began and
before i's step began, which makes j's step older than i's. Every rank that j waits for is in a still older step. The
number of ranks is finite, and therefore some rank waits for no rank. A rank that flushes leaves all buckets before it
waits in any.

On a device, a contribution is handed over when its stream reaches it, and it may be late by then. A rank therefore
waits until all its contributions are handed over before it decides where to wait. That wait involves no other rank.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, TypeAlias

import torch

from ..partial_allreduce.recovery import Unused
from .memory import first_difference, increment_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._core import Round, RoundInfo
    from ..support.deadline import Deadline
    from .means import TensorMean

    Make: TypeAlias = Callable[[torch.Tensor], TensorMean]


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which gradients of `dtype` are added up: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def fused(
    tensors: Iterable[torch.Tensor], limit: int, dtype_of: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype
) -> Iterator[list[torch.Tensor]]:
    """Group tensors in order, about `limit` bytes per group; a single tensor may be larger.

    All tensors of a group have the same dtype, or the same `dtype_of(dtype)`, which is the dtype of their buffer.
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
    """Return consecutive views of a flat tensor, with the shapes of `tensors`."""
    ends = itertools.accumulate((tensor.numel() for tensor in tensors), initial=0)
    return [flat[end : end + tensor.numel()].view(tensor.shape) for end, tensor in zip(ends, tensors, strict=False)]


class Bucket:
    """The gradients of some parameters, consecutive in one buffer, and their mean over ranks.

    The bucket owns the buffer. `contribute` copies `.grad` into it, and `show` copies the averages to `.grad`. The
    tensors in `.grad` and their strides belong to the program, which may change them at any time;
    `changed_since_contributed` detects changes. 16-bit gradients are added up in float32. After the gradients, the
    buffer holds one number per gradient: how many ranks had this gradient.

    After `wait` or `flush`, the bucket holds the sum of the means that this rank received since `begin`. `late` and
    `missed` describe the round that the step received.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], make: Make) -> None:
        """Fuse gradients on one device, with the same `summed_in`; `make` creates the mean for their buffer."""
        self.parameters = tuple(parameters)
        first = parameters[0]
        self._starts = list(itertools.accumulate((tensor.numel() for tensor in parameters), initial=0))
        count = self._starts[-1]
        self.flat = torch.zeros(count + len(parameters), dtype=summed_in(first.dtype), device=first.device)
        self.parts = parts_of(self.flat, parameters)  # views of the buffer, one for each parameter's gradient
        self._present = self.flat[count:]
        self.mean = make(self.flat)
        self._zeros: torch.Tensor | None = None
        self._total: torch.Tensor | None = None  # sum of results
        self._calls: deque[Round] = deque()  # arrivals without a result yet, oldest first
        self._newest = -1  # newest round that this rank received
        self._leaving = False
        self._had_one = [False] * len(parameters)  # which gradients existed at this rank's last contribution
        self.info: RoundInfo | None = None  # of the newest round that a call received
        self.late, self.missed = False, 0
        self.begin()

    def unused(self, *, flushing: bool) -> Unused:
        """Return the results since `begin`, for the collective. `flushing`: whether the optimizer is flushing."""
        result = None
        if self._unread:
            result = self.mean.collective.result
        elif self.given:
            assert self._total is not None
            result = self._total.cpu().numpy()
        return Unused(result, self._rounds, flushed=flushing and not self._leaving)

    def begin(self) -> None:
        """Begin a step, with nothing contributed or received yet."""
        self._armed = self.mean.rounds  # the first round that has not completed
        self._ready: set[int] = set()
        self.graph_task = -1
        self._expected = sum(tensor.requires_grad for tensor in self.parameters)
        self.contributed = False  # this step's gradients were handed over
        self._call: Round | None = None  # the call that handed them over
        self._given = 0  # results received since then
        self._rounds = 0  # of these results
        self._unread = False  # the only result is still in the mean, until this rank's next call
        self._behind = False  # the round that the call received lacks this rank's newest data

    # ------------------------------------------------------------------------------------------------ contributing

    def note_ready(self, number: int) -> bool:
        """Note that a parameter's gradient is ready; return whether all gradients are ready."""
        self._ready.add(number)
        return len(self._ready) == self._expected

    def forget_ready(self) -> None:
        """Reset the count of ready gradients after a skipped step, which dropped the gradients."""
        if not self.contributed:
            self._ready.clear()

    def gradients(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return the parameters that have gradients, each with its gradient and its part of the buffer."""
        every = ((parameter, parameter.grad, part) for parameter, part in zip(self.parameters, self.parts, strict=True))
        return [(parameter, gradient, part) for parameter, gradient, part in every if gradient is not None]

    @torch.profiler.record_function("pycollectives: contribute gradients")
    def contribute(self) -> None:
        """Contribute the gradients; a parameter without a gradient contributes zeros."""
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
        """Return a parameter whose gradient differs, in any bit, from the contributed gradient, or None."""
        for parameter, had_one in zip(self.parameters, self._had_one, strict=True):
            if (parameter.grad is not None) != had_one:
                return parameter
        standing = self.gradients()
        place = first_difference([(gradient, part) for _, gradient, part in standing])
        return None if place is None else standing[place][0]

    # ------------------------------------------------------------------------------------------------ waiting

    def must_wait(self) -> bool:
        """Take the available results; return whether this step's result is still pending."""
        self._await_handover()
        round_of_call = self.mean.rounds  # used if the call has not completed below
        self._take_done()
        return bool(self._calls) and round_of_call <= self._armed

    def arrive_again(self) -> None:
        """If this rank's call was late, arrive in the round that will take its data."""
        while self._behind:
            self._keep_result()
            if self._zeros is None:
                self._zeros = torch.zeros_like(self.flat)
            self._calls.append(self.mean.contribute(self._zeros))
            self._behind = False
            self._await_handover()
            self._take_done()

    def wait(self, deadline: Deadline) -> None:
        """Wait for this rank's calls, and add up their results."""
        while self._calls:
            self._keep_result()
            self._calls[0].wait(timeout=deadline.remaining())  # after a timeout, the call stays in the queue
            self._take(self._calls.popleft())

    def _await_handover(self) -> None:
        """Wait until this rank's calls are handed over. Calls on the host already are, so this returns at once."""
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
        if self.info.round > self._newest:  # otherwise an earlier call received it already
            self._newest = self.info.round
            self._add_result(self.info)

    def _add_result(self, info: RoundInfo) -> None:
        if self._given == 0:
            self._unread = True
        else:
            assert self._total is not None
            self.mean.add_to(self._total)
        self._given += 1
        self._rounds += 1 + info.missed

    def _keep_result(self) -> None:
        """Copy the mean's result, since this rank's next call may replace it."""
        if self._unread:
            if self._total is None:
                self._total = torch.empty_like(self.flat)
            self.mean.write_to(self._total)
            self._unread = False

    # ------------------------------------------------------------------------------------------------ leaving

    def begin_flush(self) -> None:
        """Begin a flush, with nothing received yet; call `start_flush` and `flush` next."""
        self.begin()
        self._leaving = True

    def start_flush(self) -> None:
        """Take the available results and leave the mean, so that no rank waits for this rank. May be repeated."""
        if self._leaving:
            self._take_done()
            self._keep_result()
            self.mean.start_flush()

    def flush(self, deadline: Deadline) -> None:
        """Wait until all ranks flush, and add up this rank's outstanding results."""
        if not self._leaving:
            return  # flushed already; the flush of another bucket reached its time limit
        owed = self.mean.flush(timeout=deadline.remaining())
        self._leaving = False
        self._calls.clear()
        if owed is not None and owed.round > self._newest:  # otherwise a call has received it, before a timeout
            self._newest = owed.round
            self._add_result(owed)
        elif owed is None and self.given:
            self._rounds += 1  # the last one, which is empty

    # ------------------------------------------------------------------------------------------------ results

    @property
    def given(self) -> bool:
        """Whether this rank has received a result since `begin`."""
        return self._given > 0

    def show(self, keep: Callable[[torch.Tensor], bool]) -> None:
        """Write the averages to `.grad`: into its memory if `keep` returns True for it, otherwise into new memory.

        If no rank had a gradient, `.grad` becomes None, so that optimizers skip the parameter.
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
        """Return a copy of the average that `show` wrote; None if no rank had a gradient."""
        number = next(place for place, one in enumerate(self.parameters) if one is parameter)
        if not self._has_one()[number]:
            return None
        average = _new_gradient(parameter)
        self._write([(self._starts[number], average)])
        return average

    def _has_one(self) -> list[bool]:
        """Return, for each gradient, whether any rank had it, as far as this rank knows."""
        if not self.given:
            return self._had_one
        present = torch.empty_like(self._present)
        self._write([(self._starts[-1], present)])
        has_one: list[bool] = present.gt(0).tolist()
        return has_one

    def _write(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Write averages into tensors of any strides; `outs`: each average's start in the buffer, and its tensor."""
        if self._unread:
            self.mean.write_parts(outs)
            for _, out in outs:
                increment_version(out)  # PyTorch did not see the write
            return
        for start, out in outs:
            if self.given:
                assert self._total is not None
                out.copy_(self._total[start : start + out.numel()].view(out.shape))
            else:
                out.zero_()


def _new_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Return memory for a gradient, of the dtype that PyTorch requires."""
    return torch.empty_like(parameter, dtype=getattr(parameter, "grad_dtype", None) or parameter.dtype)
