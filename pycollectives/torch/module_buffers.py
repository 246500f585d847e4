"""Average the buffers of a model, such as the running statistics of BatchNorm, over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..partial_reduce.means import reduce_on_all_ranks
from ..support.operations import AVG
from .broadcast import broadcast_tensors
from .parameters import FlatTensors, in_words

if TYPE_CHECKING:
    from ..communicator import Communicator
    from ..support.deadline import Deadline

__all__ = ["ModuleBuffers"]


class ModuleBuffers:
    """All buffers of a model, including those that its `state_dict` omits."""

    def __init__(self, model: torch.nn.Module) -> None:
        """List the buffers."""
        self.tensors = list(model.buffers())

    def signature(self) -> dict[str, str | int | None]:
        """See `agreement.Signed`."""
        return {"buffers": in_words(self.tensors)}

    def average(self, comm: Communicator, deadline: Deadline) -> None:
        """Set floating-point buffers to their mean and others, such as step counts, to rank 0's values; collective.

        Means are computed in float64, so that equal buffers of types up to float32 do not change in any bit.
        """
        floats = [tensor for tensor in self.tensors if tensor.is_floating_point()]
        flat = FlatTensors(floats, torch.float64)
        flat.gather()
        reduce_on_all_ranks(comm, flat.array, AVG, deadline.remaining(), caller="average_buffers")
        flat.scatter()
        broadcast_tensors(comm, (tensor for tensor in self.tensors if not tensor.is_floating_point()), deadline)
