"""Average the buffers of a model, such as the running statistics of BatchNorm, over ranks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from ..partial_reduce.means import reduce_on_all_ranks
from ..support.operations import AVG
from .broadcast import CHUNK, broadcast_tensors
from .buckets import fused
from .parameters import FlatTensors, in_words
from .refusals import check_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..support.deadline import Deadline


class ModuleBuffers:
    """All buffers of a model, including those that its `state_dict` omits."""

    def __init__(self, comm: Communicator, model: torch.nn.Module | None) -> None:
        self._comm = comm
        self._model = model

    def checked(self) -> ModuleBuffers:
        """Return `self`; raise an error if there is no model, or a buffer is not in host or CUDA memory."""
        if self._model is None:
            raise ValueError("average_buffers: expected a model, got None: pass model to this call or to the optimizer")
        check_model(self._model)
        return self

    def signature(self) -> dict[str, str | int | None]:
        return {"buffers": in_words([*self._of_kind(floats=True), *self._of_kind(floats=False)])}

    def average_floats(self, deadline: Deadline) -> None:
        """Set floating-point buffers to their mean over ranks; collective.

        Means are computed in float64, so that equal buffers of types up to float32 do not change in any bit.
        """
        flat = FlatTensors(self._of_kind(floats=True), torch.float64)
        flat.gather()
        reduce_on_all_ranks(self._comm, flat.array, AVG, deadline.remaining(), caller="average_buffers")
        flat.scatter()

    def broadcasts(self) -> list[Callable[[Deadline], None]]:
        """Return operations that set the other buffers, such as step counts, to rank 0's values; collective."""
        groups = fused(self._of_kind(floats=False), CHUNK)
        return [partial(broadcast_tensors, self._comm, group) for group in groups]

    def _of_kind(self, *, floats: bool) -> list[torch.Tensor]:
        if not isinstance(self._model, torch.nn.Module):  # `checked` raises
            return []
        return [tensor for tensor in self._model.buffers() if tensor.is_floating_point() == floats]
