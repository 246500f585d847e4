"""The parameters of a torch optimizer: list, check, describe and flatten them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..agreement.consistency import shortened
from ..partial_reduce.means import reduce_on_all_ranks
from ..support.operations import AVG
from .buckets import parts_of, summed_in
from .host_copy import host_memory, wait_for
from .memory import overlaps_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..communicator import Communicator
    from ..support.deadline import Deadline
    from ..support.typing import Array

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LONGEST = 600
"""Maximum length of a description in characters; longer ones are compared by a hash."""


def parameters_of(groups: Iterable[Mapping[str, Any]]) -> list[torch.Tensor]:
    """Return the parameters of parameter groups in order, without duplicates."""
    return list(dict.fromkeys(parameter for group in groups for parameter in group["params"]))


def name_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, model: torch.nn.Module | None = None) -> str:
    """Return a parameter's name: from the optimizer, from the model, or from its position."""
    of_model = {} if model is None else {id(each): name for name, each in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for place, candidate in enumerate(group["params"]):
            if candidate is parameter:
                names = group.get("param_names")
                name = names[place] if names else of_model.get(id(parameter))
                return f"{place} of group {number}" if name is None else repr(name)
    return "that is no longer the optimizer's"


@dataclass(frozen=True)
class Signature:
    """Properties that must be the same on all ranks: a description of the parameters, and options."""

    parameters: str
    options: Mapping[str, str | int | None]

    @classmethod
    def of(
        cls, parameters: Sequence[torch.Tensor], name_of: Callable[[torch.Tensor], str], **options: str | int | None
    ) -> Signature:
        """Check and describe parameters; raise `TypeError` if a parameter's gradients cannot be averaged."""
        for parameter in parameters:
            _check(f"parameter {name_of(parameter)}", parameter)
        return cls(in_words(parameters), options)

    def signature(self) -> dict[str, str | int | None]:
        return {"parameters": self.parameters, **self.options}


def in_words(tensors: Sequence[torch.Tensor]) -> str:
    """Describe tensors by their number, and by their shapes and dtypes in order."""
    words = [
        f"{tuple(tensor.shape)} {dtype_name(tensor.dtype)}{' on cuda' if tensor.is_cuda else ''}{frozen}"
        for tensor in tensors
        for frozen in [" frozen" if isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad else ""]
    ]
    return shortened(f"{len(words)}: {', '.join(words)}", LONGEST)


def _check(what: str, parameter: torch.Tensor) -> None:
    check_tensor(what, parameter)
    if parameter.requires_grad and parameter.dtype not in DTYPES:
        names = ", ".join(dtype_name(dtype) for dtype in DTYPES)
        raise TypeError(f"{what}: expected one of {names}; got {dtype_name(parameter.dtype)}")


def check_tensor(what: str, tensor: torch.Tensor) -> None:
    """Raise `TypeError` for a tensor without shape, or one that is not dense in host or CUDA memory."""
    if torch.nn.parameter.is_lazy(tensor):
        raise TypeError(
            f"{what}: expected a tensor with a shape, got {type(tensor).__name__} of a lazy module: run the model "
            "once on all ranks before you make the optimizer"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{what}: expected memory of the host or of a CUDA device, got device {tensor.device}")
    if tensor.layout is not torch.strided or hasattr(tensor, "__tensor_flatten__"):
        raise TypeError(f"{what}: expected a dense tensor, got {type(tensor).__name__} of layout {tensor.layout}")
    if overlaps_itself(tensor):
        raise TypeError(
            f"{what}: expected separate memory for each element, got strides {tensor.stride()} for shape "
            f"{tuple(tensor.shape)}, as after expand(): call contiguous() first"
        )


def check_one_device(parameters: Iterable[torch.Tensor]) -> None:
    """Raise `TypeError` for parameters on several devices."""
    devices = list(dict.fromkeys(str(parameter.device) for parameter in parameters))
    if len(devices) > 1:
        raise TypeError(f"optimizer: expected parameters on one device, got {', '.join(devices)}")


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, such as "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


class FlatTensors:
    """Copies tensors to one flat buffer on the host, and back.

    For tensors on a device, the buffer is pinned. Copies are complete when a call returns.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
        """Allocate a buffer of one dtype for tensors of any dtype; `gather` fills it."""
        self._tensors = tuple(tensors)
        self._devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        beside = next(iter(self._devices), torch.device("cpu"))
        self.flat = host_memory([sum(tensor.numel() for tensor in tensors)], dtype, beside)
        self._parts = parts_of(self.flat, tensors)

    @property
    def array(self) -> Array:
        """The buffer as a NumPy array on the same memory."""
        array: Array = self.flat.numpy()
        return array

    @torch.no_grad()
    def gather(self) -> None:
        """Copy the tensors into the buffer."""
        for part, tensor in zip(self._parts, self._tensors, strict=True):
            part.copy_(tensor, non_blocking=True)
        self._wait()

    @torch.no_grad()
    def scatter(self) -> None:
        """Copy the buffer into the tensors, rounded to their dtypes."""
        for part, tensor in zip(self._parts, self._tensors, strict=True):
            tensor.copy_(part, non_blocking=True)
        self._wait()

    def _wait(self) -> None:
        for device in self._devices:
            wait_for(device)


def average(comm: Communicator, parameters: Sequence[torch.Tensor], deadline: Deadline) -> None:
    """Set parameters to their mean over all ranks, rounded once; collective."""
    flat = FlatTensors(parameters, summed_in(parameters[0].dtype))
    flat.gather()
    reduce_on_all_ranks(comm, flat.array, AVG, deadline.remaining(), caller="synchronize_parameters")
    flat.scatter()
