"""The ways by which a program can write, replace, re-point, clear, or lay out `.grad`, each with its right outcome."""

from __future__ import annotations

import tempfile
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from gradient_programs import CHANGED, NOT_AVERAGED, REPLACED, WAYS, after_backward, replaced, way

if TYPE_CHECKING:
    from gradient_programs import Program

__all__ = ["WAYS"]

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
    """The program clears the buffer, and never `.grad`."""
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
def by_hand_with_the_negative_bit(c: Program) -> None:
    for p in c.w:
        p.grad = torch._neg_view(torch.empty_like(p).copy_(-c.numbers(p)))


@way()
def by_hand_in_memory_that_cannot_be_written(c: Program) -> None:
    for p in c.w:
        with tempfile.TemporaryFile() as file:
            c.numbers(p).numpy().tofile(file)
            array = np.memmap(file, np.float32, "r", shape=tuple(p.shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot be written
            p.grad = torch.from_numpy(array)
        c.kept.append(p.grad)


@way()
def by_autograd_grad(c: Program) -> None:
    for parameter, gradient in zip(c.w, torch.autograd.grad(c.loss(), c.w), strict=True):
        parameter.grad = gradient


@way()
def by_autograd_grad_of_a_sum(c: Program) -> None:
    """The gradients are one tensor, or expanded tensors."""
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
