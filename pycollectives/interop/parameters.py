"""The parameters of a torch optimizer: which there are, what they are like, and the same values on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..agreement.consistency import shortened
from ..support.operations import AVG
from .buckets import fused, parts_of, summed_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..communicator import Communicator
    from ..support.deadline import Deadline

__all__ = ["Signature", "average", "give_those_of_rank_0", "name_of", "parameters_of"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LONGEST = 600
"""Characters of a description; of a longer one a hash is compared."""


def parameters_of(groups: Iterable[Mapping[str, Any]]) -> list[torch.Tensor]:
    """Return the parameters of parameter groups in their order, each once."""
    return list(dict.fromkeys(parameter for group in groups for parameter in group["params"]))


def name_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> str:
    """Return the name that the optimizer was given for a parameter, or its place."""
    for number, group in enumerate(optimizer.param_groups):
        for place, candidate in enumerate(group["params"]):
            if candidate is parameter:
                names = group.get("param_names")
                return repr(names[place]) if names else f"{place} of group {number}"
    return "that is not the optimizer's any more"


@dataclass(frozen=True)
class Signature:
    """What must be the same on all ranks: parameters, in words, and options."""

    parameters: str
    options: Mapping[str, str | int | None]

    @classmethod
    def of(cls, parameters: Sequence[torch.Tensor], **options: str | int | None) -> Signature:
        """Check parameters, and describe them; `TypeError` if gradients of one cannot be averaged."""
        for place, parameter in enumerate(parameters):
            _check(place, parameter)
        words = [
            f"{tuple(tensor.shape)} {_dtype_name(tensor.dtype)}{'' if tensor.requires_grad else ' frozen'}"
            for tensor in parameters
        ]
        return cls(shortened(f"{len(words)}: {', '.join(words)}", LONGEST), options)

    def signature(self) -> dict[str, str | int | None]:
        """See `agreement.Signed`."""
        return {"parameters": self.parameters, **self.options}


def _check(place: int, parameter: torch.Tensor) -> None:
    if parameter.device.type != "cpu":
        raise TypeError(f"parameter {place}: expected host memory, got device {parameter.device}")
    if parameter.layout is not torch.strided:
        raise TypeError(f"parameter {place}: expected a dense tensor, got layout {parameter.layout}")
    if parameter.requires_grad and parameter.dtype not in DTYPES:
        names = ", ".join(_dtype_name(dtype) for dtype in DTYPES)
        raise TypeError(f"parameter {place}: expected one of {names}; got {_dtype_name(parameter.dtype)}")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@torch.no_grad()
def give_those_of_rank_0(
    comm: Communicator, parameters: Sequence[torch.Tensor], bucket_bytes: int, deadline: Deadline
) -> None:
    """Give all ranks the values of rank 0, of any dtype; collective."""
    for group in fused(parameters, bucket_bytes):
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        data = flat.view(torch.uint8)  # bytes plus zeros are the same bits
        if comm.rank != 0:
            data.zero_()
        comm.preduce(data.numpy(), range(comm.size), op="SUM", timeout=deadline.remaining())
        _scatter(flat, group)


@torch.no_grad()
def average(comm: Communicator, parameters: Sequence[torch.Tensor], deadline: Deadline) -> None:
    """Give all ranks the mean of the values of all, rounded once; collective."""
    flat = torch.cat([tensor.reshape(-1).to(summed_in(tensor.dtype)) for tensor in parameters])
    comm.preduce(flat.numpy(), range(comm.size), op=AVG, timeout=deadline.remaining())
    _scatter(flat, parameters)


def _scatter(flat: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    for part, tensor in zip(parts_of(flat, parameters), parameters, strict=True):
        tensor.copy_(part)
