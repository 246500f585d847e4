"""Parameters as the program sees them, and the program's changes to the averaged model."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import torch

from .buckets import summed_in
from .parameters import FlatTensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.typing import Array


class ShownParameters:
    """Parameters of any dtypes, and the values that were written to them last.

    All parameters are averaged in one dtype, the widest of their dtypes and at least float32. 16-bit parameters are a
    rounded copy of a float32 model, so that averages do not lose precision.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._shown = FlatTensors(parameters, _widest(parameters))
        self._now = FlatTensors(parameters, _widest(parameters))
        self._shown.gather()

    @property
    def values(self) -> Array:
        """The values written last, after rounding; read only."""
        return self._shown.array

    def change(self) -> Array:
        """Return the program's changes to `values`, such as an optimizer's step; valid until the next call."""
        self._now.gather()
        change = self._now.array
        return np.subtract(change, self._shown.array, out=change)

    def take_change(self) -> None:
        """Mark the change as contributed: `change` returns zeros afterwards."""
        self._shown.gather()

    def show(self, values: Array) -> None:
        """Write values to the parameters, rounded to their dtypes."""
        np.copyto(self._shown.array, values)
        self._shown.scatter()
        self._shown.gather()


def _widest(parameters: Sequence[torch.Tensor]) -> torch.dtype:
    return reduce(torch.promote_types, (summed_in(parameter.dtype) for parameter in parameters))
