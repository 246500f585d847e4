"""The ways by which a program can write, replace, re-point, clear, or lay out `.grad`, each with its right outcome.

A way is one step of a program, up to `step()`. It runs with an `EagerOptimizer`, and with a `Synchronous` optimizer,
which is plain PyTorch with averaged gradients. Losses are linear in the parameters with whole numbers, so that all sums
are exact, and no gradient depends on when an average came.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LAYOUTS", "WAYS", "Program", "Synchronous", "Way"]

LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.zeros(3, 2),
    "transposed": lambda: torch.zeros(2, 3).t(),
    "channels_last": lambda: torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last),
}


class Board:
    """Where ranks, which are threads, exchange objects."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=30.0)
        self._slots: list[Any] = [None] * size

    def exchange(self, rank: int, mine: Any) -> list[Any]:
        self._slots[rank] = mine
        self._barrier.wait()
        everything = list(self._slots)
        self._barrier.wait()
        return everything


class Synchronous:
    """Plain PyTorch: gradients are averaged over ranks where they stand, in `step`; ranks are threads."""

    def __init__(self, optimizer: torch.optim.Optimizer, rank: int, board: Board) -> None:
        self.optimizer = optimizer
        self._rank = rank
        self._board = board
        self._averaged = False

    @torch.no_grad()
    def average_gradients(self) -> None:
        if self._averaged:
            return
        parameters = self.optimizer.param_groups[0]["params"]
        mine = [None if p.grad is None else p.grad.to(torch.float64).clone() for p in parameters]
        for parameter, *gradients in zip(parameters, *self._board.exchange(self._rank, mine), strict=True):
            there = [gradient for gradient in gradients if gradient is not None]
            if not there:
                parameter.grad = None
                continue
            average = sum(there[1:], there[0]) / len(gradients)
            keeps = parameter.grad is not None and _is_apart(parameter.grad, parameters)
            if not keeps:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(average)
        self._averaged = True

    def step(self, closure: Any = None) -> None:
        if closure is not None:
            closure()
        self.average_gradients()
        self.optimizer.step()
        self._averaged = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._averaged = False
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def flush(self) -> None:
        """Nothing waits."""

    def average(self, metric: float) -> float:
        return sum(self._board.exchange(self._rank, metric)) / self._board.size


def _is_apart(gradient: torch.Tensor, parameters: list[torch.Tensor]) -> bool:
    """Whether a gradient shares no memory with itself, another gradient, or a parameter."""
    if gradient.is_inference() or (gradient.numel() > 1 and 0 in gradient.stride()):
        return False
    others = [p for p in parameters] + [p.grad for p in parameters if p.grad is not None and p.grad is not gradient]
    users = sum(p.grad is gradient for p in parameters)
    return users == 1 and all(other.data_ptr() != gradient.data_ptr() for other in others)


class Program:
    """One rank's model and optimizer: two parameters of one layout, and a bias."""

    def __init__(self, rank: int, layout: str, wrap: Callable[[torch.optim.Optimizer], Any], **options: Any) -> None:
        self.rank = rank
        self.module = torch.nn.Module()
        for name in ("a", "b"):
            self.module.register_parameter(name, torch.nn.Parameter(LAYOUTS[layout]()))
        self.module.register_parameter("bias", torch.nn.Parameter(torch.zeros(4)))
        self.a, self.b, self.bias = self.w = list(self.module.parameters())
        self.step = 0
        self.flat: torch.Tensor | None = None
        self.kept: list[torch.Tensor] = []
        self.optimizer = wrap(torch.optim.SGD(self.w, lr=0.5, **options))

    def numbers(self, parameter: torch.Tensor, scale: float = 8.0) -> torch.Tensor:
        """Whole numbers that differ between elements, parameters, ranks, and steps."""
        place = next(number for number, one in enumerate(self.w) if one is parameter)
        first = 1 + 3 * place + 5 * self.rank + 7 * self.step
        return scale * torch.arange(first, first + parameter.numel(), dtype=torch.float32).view(parameter.shape)

    def loss(self, *parameters: torch.Tensor) -> torch.Tensor:
        return sum(((p * self.numbers(p)).sum() for p in parameters or self.w), torch.zeros(()))

    def backward(self, *parameters: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(*parameters).backward()

    def hand(self, *parameters: torch.Tensor) -> None:
        """Set gradients that no backward has computed."""
        for parameter in parameters or self.w:
            parameter.grad = torch.empty_like(parameter).copy_(self.numbers(parameter))

    @property
    def grads(self) -> Iterator[torch.Tensor]:
        return (p.grad for p in self.w if p.grad is not None)


CHANGED = "was changed after it had been contributed"
REPLACED = "was replaced after average_gradients"
NOT_AVERAGED = "is not averaged"


@dataclass(frozen=True)
class Way:
    """A step of a program, and the error of `step()` where gradients cannot be averaged as they stand."""

    run: Callable[[Program], None]
    overlapped: str | None = None  # the error if backward has contributed
    error: str | None = None  # without overlap
    only: int | None = None  # the rank that does it; the others just compute
    depends_on_averages: bool = False  # so the sum over steps depends on when they come


WAYS: dict[str, Way] = {}


def way(*arguments: Any, **options: Any) -> Callable[[Callable[[Program], None]], Callable[[Program], None]]:
    def register(run: Callable[[Program], None]) -> Callable[[Program], None]:
        name = run.__name__.removeprefix("_")
        WAYS[name] = Way(run, *arguments, **options)
        return run

    return register


def after_backward(name: str, change: Callable[[torch.Tensor], Any], *arguments: Any, **options: Any) -> None:
    """Add a way that changes each gradient after backward."""

    def run(c: Program) -> None:
        c.backward()
        for gradient in c.grads:
            with torch.no_grad():
                change(gradient)

    WAYS[name] = Way(run, *arguments, **options)


def replaced(name: str, new: Callable[[torch.Tensor], Any], *arguments: Any, **options: Any) -> None:
    """Add a way that sets another gradient after backward, made of a parameter."""

    def run(c: Program) -> None:
        c.backward()
        for parameter in c.w:
            with torch.no_grad():
                parameter.grad = new(parameter)

    WAYS[name] = Way(run, *arguments, **options)


# ---------------------------------------------------------------------------------------------------- written in place


def _numpy(gradient: torch.Tensor) -> None:
    array = gradient.numpy()
    array *= 0.5


def _dlpack(gradient: torch.Tensor) -> None:
    torch.from_dlpack(gradient).mul_(0.5)


def _storage(gradient: torch.Tensor) -> None:
    storage = gradient.untyped_storage()
    storage[3] = storage[3] ^ 0x80  # the sign of the first element in memory


def _negate_two(gradient: torch.Tensor) -> None:
    gradient.data.view(-1)[:2].neg_() if gradient.is_contiguous() else gradient.data.neg_()


def _exchange_two(gradient: torch.Tensor) -> None:
    flat = gradient.detach().as_strided((2,), (1,))
    flat.copy_(flat.flip(0))


after_backward("mul_", lambda g: g.mul_(0.5), CHANGED)
after_backward("item assigned", lambda g: g.__setitem__(0, 16.0), CHANGED)
after_backward("zero_", lambda g: g.zero_(), CHANGED)
after_backward("zeros of another sign", lambda g: g.zero_().neg_(), CHANGED)
after_backward("one infinity", lambda g: g.as_strided((1,), (1,)).fill_(float("inf")), CHANGED)
after_backward("copy_", lambda g: g.copy_(g * 0.5), CHANGED)
after_backward("sparse mask", lambda g: g.masked_fill_(g > 40, 0.0), CHANGED)
after_backward("detach().mul_", lambda g: g.detach().mul_(0.5), CHANGED)
after_backward("view", lambda g: g.as_strided((g.numel(),), (1,)).mul_(0.5), CHANGED)
after_backward("data.mul_", lambda g: g.data.mul_(0.5), CHANGED)
after_backward("data.clamp_", lambda g: g.data.clamp_(max=24.0), CHANGED)
after_backward("data negated in pairs", _negate_two, CHANGED)
after_backward("data exchanged", _exchange_two, CHANGED)
after_backward("NumPy", _numpy, CHANGED)
after_backward("DLPack", _dlpack, CHANGED)
after_backward("storage", _storage, CHANGED)
after_backward("written and put back", lambda g: g.mul_(0.5).mul_(2.0))
after_backward("requires_grad_", lambda g: g.requires_grad_())
after_backward("data.mul_ on rank 1", lambda g: g.data.mul_(0.5), CHANGED, only=1)
after_backward("mul_ on rank 0", lambda g: g.mul_(0.5), CHANGED, only=0)


@way(CHANGED)
def clip_by_value(c: Program) -> None:
    c.backward()
    torch.nn.utils.clip_grad_value_(c.w, 24.0)


@way(CHANGED, depends_on_averages=True)
def clip_by_norm(c: Program) -> None:
    c.backward()
    torch.nn.utils.clip_grad_norm_(c.w, 1.0)


@way()
def clip_by_a_norm_that_is_not_reached(c: Program) -> None:
    c.backward()
    torch.nn.utils.clip_grad_norm_(c.w, 1e9)


@way(CHANGED)
def foreach(c: Program) -> None:
    c.backward()
    torch._foreach_mul_(list(c.grads), 0.5)


@way(CHANGED)
def hook_after_the_optimizers(c: Program) -> None:
    def halve(parameter: torch.Tensor) -> None:
        parameter.grad.data.mul_(0.5)

    handles = [parameter.register_post_accumulate_grad_hook(halve) for parameter in c.w]
    c.backward()
    for handle in handles:
        handle.remove()


@way()
def hook_of_the_tensor(c: Program) -> None:
    handles = [p.register_hook(lambda gradient: gradient * 0.5) for p in c.w]
    c.backward()
    for handle in handles:
        handle.remove()


@way()
def written_through_a_view_of_the_last_step(c: Program) -> None:
    c.backward()
    for gradient in c.kept:
        gradient.zero_()
    c.kept = [gradient.detach() for gradient in c.grads]


# ------------------------------------------------------------------------------------------------------------ replaced

replaced("replaced by a clone", lambda p: p.grad.clone())
replaced("replaced by a contiguous one", lambda p: p.grad.contiguous())
replaced("replaced by other strides", lambda p: p.grad.transpose(0, -1).contiguous().transpose(0, -1))
replaced("replaced by a half", lambda p: p.grad * 0.5, CHANGED)
replaced("replaced by zeros", lambda p: torch.zeros_like(p), CHANGED)
replaced("replaced by an expanded one", lambda p: torch.full((), 8.0).expand(p.shape), CHANGED)
replaced("replaced by a slice", lambda p: torch.stack([p.grad * 0.5, p.grad], -1)[..., 0], CHANGED)
replaced("replaced by NumPy's", lambda p: torch.from_numpy(np.full(p.shape, 8.0, np.float32)), CHANGED)
replaced("replaced by the parameter", lambda p: p.detach(), CHANGED, depends_on_averages=True)
replaced("replaced on rank 1", lambda p: p.grad * 0.5, CHANGED, only=1)
replaced("None", lambda p: None, CHANGED)
replaced("None on rank 1", lambda p: None, CHANGED, only=1)


@way(CHANGED)
def one_for_two_parameters(c: Program) -> None:
    c.backward()
    c.a.grad = c.b.grad = torch.empty_like(c.a).copy_(c.numbers(c.a))


@way(CHANGED, only=1)
def one_for_two_parameters_on_rank_1(c: Program) -> None:
    c.backward()
    c.a.grad = c.b.grad = torch.empty_like(c.a).copy_(c.numbers(c.a))


@way(CHANGED)
def exchanged(c: Program) -> None:
    c.backward()
    c.a.grad, c.b.grad = c.b.grad, c.a.grad


@way(CHANGED)
def deleted(c: Program) -> None:
    c.backward()
    del c.a.grad


@way(CHANGED)
def made_in_inference_mode(c: Program) -> None:
    c.backward()
    with torch.inference_mode():
        gradient = torch.empty_like(c.a).copy_(c.numbers(c.a, 16.0))
    c.a.grad = gradient


# ---------------------------------------------------------------------------------------------------------- re-pointed


def _set_data(gradient: torch.Tensor, data: torch.Tensor) -> None:
    gradient.data = data


after_backward("data = clone", lambda g: _set_data(g, g.data.clone()))
after_backward("data = half", lambda g: _set_data(g, g.data * 0.5), CHANGED)
after_backward("data = float64", lambda g: _set_data(g, g.data.double()), NOT_AVERAGED, NOT_AVERAGED)
after_backward("data = another shape", lambda g: _set_data(g, g.data.flatten()[:1]), NOT_AVERAGED, NOT_AVERAGED)
after_backward("set_ of a clone", lambda g: g.set_(g.clone()))
after_backward("set_ of a half", lambda g: g.set_(g * 0.5), CHANGED)
after_backward("data = clone on rank 1", lambda g: _set_data(g, g.data.clone()), only=1)


@way()
def module_to_double_and_back(c: Program) -> None:
    c.backward()
    c.module.double()
    c.module.float()


@way()
def parameters_re_pointed(c: Program) -> None:
    c.backward()
    for parameter in c.w:
        parameter.data = parameter.data.clone()


# ------------------------------------------------------------------------------------------------------------- cleared


@way()
def zeroed(c: Program) -> None:
    c.optimizer.zero_grad(set_to_none=False)
    c.loss().backward()


@way()
def zeroed_as_of_old(c: Program) -> None:
    for gradient in c.grads:
        gradient.detach_()
        gradient.zero_()
    c.loss().backward()


@way()
def zeroed_by_data(c: Program) -> None:
    for gradient in c.grads:
        gradient.data.zero_()
    c.loss().backward()


@way()
def zeroed_by_the_model(c: Program) -> None:
    c.module.zero_grad()
    c.loss().backward()


@way()
def zeros_before_backward(c: Program) -> None:
    for parameter in c.w:
        parameter.grad = torch.zeros_like(parameter)
    c.loss().backward()


@way(depends_on_averages=True)
def never_cleared(c: Program) -> None:
    c.loss().backward()


@way()
def views_of_one_buffer(c: Program) -> None:
    """Which the program clears, and never `.grad`."""
    if c.flat is None:
        c.flat = torch.zeros(sum(p.numel() for p in c.w))
        start = 0
        for parameter in c.w:
            part = c.flat[start : start + parameter.numel()]
            parameter.grad = part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
            start += parameter.numel()
    c.flat.zero_()
    c.loss().backward()


# ------------------------------------------------------------------------------------------------------------- by hand


@way()
def by_hand(c: Program) -> None:
    c.optimizer.zero_grad()
    c.hand()


@way()
def by_hand_without_clearing(c: Program) -> None:
    c.hand()


@way()
def by_autograd_grad(c: Program) -> None:
    for parameter, gradient in zip(c.w, torch.autograd.grad(c.loss(), c.w), strict=True):
        parameter.grad = gradient


@way()
def by_autograd_grad_of_a_sum(c: Program) -> None:
    """Whose gradients are one tensor, or expanded ones."""
    for parameter, gradient in zip((c.a, c.b), torch.autograd.grad(((c.a + c.b) * 8).sum(), (c.a, c.b)), strict=True):
        parameter.grad = gradient


@way()
def by_torch_func(c: Program) -> None:
    values = {name: parameter.detach() for name, parameter in c.module.named_parameters()}
    gradients = torch.func.grad(
        lambda given: sum((v * c.numbers(getattr(c.module, k))).sum() for k, v in given.items())
    )
    for name, gradient in gradients(values).items():
        getattr(c.module, name).grad = gradient


@way()
def partly_by_hand(c: Program) -> None:
    c.backward(c.a)
    c.hand(c.b)


@way()
def by_hand_on_rank_1(c: Program) -> None:
    c.optimizer.zero_grad()
    if c.rank == 1:
        c.hand(c.a)


@way()
def none_at_all(c: Program) -> None:
    c.optimizer.zero_grad()


@way()
def one_that_no_rank_has(c: Program) -> None:
    c.backward(c.a, c.bias)


@way()
def sometimes_on_one_rank(c: Program) -> None:
    c.backward(*(c.w if c.rank == c.step % 2 else [c.b]))


@way(error=NOT_AVERAGED, overlapped=NOT_AVERAGED)
def sparse_by_hand(c: Program) -> None:
    c.optimizer.zero_grad()
    c.bias.grad = c.numbers(c.bias).to_sparse()


@way()
def by_hand_of_a_frozen_parameter(c: Program) -> None:
    c.bias.requires_grad_(False)
    c.optimizer.zero_grad()
    c.hand(c.bias)
    c.loss(c.a, c.b).backward()


@way()
def frozen(c: Program) -> None:
    c.bias.requires_grad_(c.step == 0)
    c.backward(*(p for p in c.w if p.requires_grad))


@way()
def with_a_graph(c: Program) -> None:
    c.optimizer.zero_grad()
    (c.loss() * 2).backward(create_graph=True)


# ------------------------------------------------------------------------------------------------------- in this order


@way()
def accumulated(c: Program) -> None:
    c.optimizer.zero_grad()
    with c.optimizer.no_sync():
        c.loss().backward()
        c.loss(c.a).backward()
        for gradient in c.grads:
            gradient.data.mul_(0.5)
    c.loss(c.b).backward()


@way()
def by_hand_before_a_flush(c: Program) -> None:
    c.optimizer.zero_grad()
    c.hand()
    c.optimizer.flush()


@way()
def by_hand_before_an_average(c: Program) -> None:
    c.optimizer.zero_grad()
    c.hand(c.a)
    assert c.optimizer.average(4.0) == 4.0


@way()
def accumulated_before_a_flush(c: Program) -> None:
    c.optimizer.zero_grad()
    with c.optimizer.no_sync():
        c.loss().backward()
    c.optimizer.flush()


@way()
def averaged_before(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()


@way()
def averages_re_pointed(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    for gradient in c.grads:
        gradient.data = gradient.data.clone()


@way()
def averages_re_pointed_on_rank_1(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    if c.rank == 1:
        c.a.grad.data = c.a.grad.data.clone()


@way()
def averages_to_double_and_back(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.module.double()
    c.module.float()


@way()
def averages_set_to_a_clone(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.a.grad = c.a.grad.clone()


@way(depends_on_averages=True)
def averages_clipped(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    torch.nn.utils.clip_grad_value_(c.w, 24.0)


@way(depends_on_averages=True)
def averages_scaled_by_data(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    for gradient in c.grads:
        gradient.data.mul_(0.5)


@way(depends_on_averages=True)
def an_average_left_out(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.a.grad = None


@way(REPLACED, REPLACED)
def averages_replaced(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.a.grad = c.a.grad * 0.5


@way(REPLACED, REPLACED)
def averages_re_pointed_elsewhere(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.a.grad.data = c.a.grad.data * 0.5


@way(REPLACED, REPLACED)
def by_hand_after_a_skipped_step(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.module.zero_grad()
    c.hand()


@way(depends_on_averages=True)
def by_hand_after_a_step_that_was_dropped(c: Program) -> None:
    c.backward()
    c.optimizer.average_gradients()
    c.optimizer.zero_grad()
    c.hand()
