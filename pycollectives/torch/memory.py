"""Compare the bits of gradients, and find out whether averages can be written into their memory."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
"""Integer dtypes of the same size, to compare floats bit for bit, with signs of zeros and NaN."""

_libc = ctypes.CDLL(None, use_errno=True)
_memcmp = _libc.memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Piece(ctypes.Structure):
    """A piece of memory: `struct iovec`."""

    _fields_ = (("address", ctypes.c_void_p), ("length", ctypes.c_size_t))


def is_writable(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory can be written. PyTorch cannot tell for foreign memory, or after `numpy()`."""
    if tensor.untyped_storage().resizable() or tensor.is_cuda or tensor.numel() == 0:
        return True
    byte = ctypes.byref(_Piece(tensor.data_ptr(), 1))
    written = _libc.process_vm_writev(os.getpid(), byte, 1, byte, 1, 0)  # onto itself, so no value changes
    return bool(written == 1 or ctypes.get_errno() != errno.EFAULT)


def increment_version(tensor: torch.Tensor) -> None:
    """Tell autograd that a tensor has changed, so that backward raises an error if a graph has saved the tensor."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def why_not_averaged(gradient: torch.Tensor, part: torch.Tensor) -> str | None:
    """Return why a part of a bucket cannot hold a gradient, or None if it can."""
    if gradient.layout is not torch.strided:
        return f"expected a dense gradient, got layout {gradient.layout}: make its layer with sparse=False"
    if gradient.device != part.device or gradient.shape != part.shape:
        return (
            f"expected shape {tuple(part.shape)} on {part.device} as when buckets were made, got "
            f"{tuple(gradient.shape)} on {gradient.device}"
        )
    if not gradient.is_floating_point() or torch.promote_types(gradient.dtype, part.dtype) is not part.dtype:
        return f"its bucket adds up {part.dtype}, which cannot hold {gradient.dtype}"
    return None


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements may share memory, as in an expanded tensor; False only if the strides rule that out."""
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < end:
                return tensor.numel() > 0
            end = (size - 1) * stride + end
    return False


def same_bits(gradient: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether a gradient of any strides, converted to the dtype of its bucket part, equals that part bit for bit."""
    if gradient.shape != part.shape:
        return False
    if gradient.dtype is part.dtype and gradient.is_contiguous() and not (_is_on_device(part) or gradient.is_neg()):
        return not _memcmp(gradient.data_ptr(), part.data_ptr(), part.nbytes)  # half the time of torch.equal
    return torch.equal(_bits(gradient, part.dtype), _bits(part, part.dtype))


def first_difference(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> int | None:
    """Return the index of the first pair of gradient and bucket part whose bits differ, or None."""
    if pairs and _is_on_device(pairs[0][1]):  # the host waits for the device once
        differ = [(_bits(gradient, part.dtype) != _bits(part, part.dtype)).any() for gradient, part in pairs]
        places = torch.stack(differ).nonzero().flatten().tolist()
    else:
        places = [place for place, pair in enumerate(pairs) if not same_bits(*pair)]
    return places[0] if places else None


def _is_on_device(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def _bits(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.resolve_neg().to(dtype).view(BITS[dtype])


class OwnMemory:
    """The gradients to which averages can be written: their memory was writable and not shared at creation.

    A program may use one tensor as the gradient of two parameters, or a view of a parameter as its gradient. Writing
    an average would then change the other tensor. A gradient's memory may also be read-only, such as a mapped file.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        """Examine parameters and their gradients."""
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
        """Whether an average can be written to the gradient's memory."""
        if id(gradient) in self._shared or gradient.is_inference() or gradient.is_neg():
            return False
        return is_writable(gradient) and not overlaps_itself(gradient)


def _span(tensor: torch.Tensor) -> tuple[int, int, torch.Tensor]:
    """Return the address of a tensor's first element, the address after its last element, and the tensor."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes, tensor
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size(), tensor


def _start(span: tuple[int, int, torch.Tensor]) -> int:
    return span[0]
