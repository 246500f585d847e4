"""In which gradients averages are written: those whose memory belongs to no other, and which PyTorch lets be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OwnMemory", "overlaps_itself", "why_not_averaged"]


def why_not_averaged(gradient: torch.Tensor, part: torch.Tensor) -> str | None:
    """Return why a part of a bucket cannot take a gradient, or None."""
    if gradient.layout is not torch.strided:
        return f"expected a dense one, got layout {gradient.layout}: make its layer with sparse=False"
    if gradient.device != part.device or gradient.shape != part.shape:
        return (
            f"expected shape {tuple(part.shape)} on {part.device} as when buckets were made, got "
            f"{tuple(gradient.shape)} on {gradient.device}"
        )
    if not gradient.is_floating_point() or torch.promote_types(gradient.dtype, part.dtype) is not part.dtype:
        return f"its bucket adds up {part.dtype}, which {gradient.dtype} does not fit into"
    return None


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as of an expanded tensor; also if that cannot be ruled out by its strides."""
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < end:
                return tensor.numel() > 0
            end = (size - 1) * stride + end
    return False


class OwnMemory:
    """Tells which gradients have memory of their own, at one moment.

    A program may set one tensor as the gradient of two parameters, or a view of a parameter as its gradient. An average
    that is written there would change the other one.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        """Look at parameters and their gradients."""
        self._shared: set[int] = set()  # identities of gradients
        spans = []
        for parameter in parameters:
            spans.append(_span(parameter))
            if parameter.grad is not None:
                spans.append(_span(parameter.grad))
        spans.sort(key=_start)
        before = None
        for span in spans:
            if before is not None and span[0] < before[1]:
                self._shared.update((id(before[2]), id(span[2])))
            if before is None or span[1] > before[1]:
                before = span

    def __contains__(self, gradient: torch.Tensor) -> bool:
        """Whether an average can be written there."""
        return not (id(gradient) in self._shared or gradient.is_inference() or overlaps_itself(gradient))


def _span(tensor: torch.Tensor) -> tuple[int, int, torch.Tensor]:
    """Return the addresses from the first element of a tensor to behind the last, and the tensor."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes, tensor
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size(), tensor


def _start(span: tuple[int, int, torch.Tensor]) -> int:
    return span[0]
