"""Parameters as a program sees them, and what it has changed there since they were given a model that ranks average."""

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

__all__ = ["ShownParameters"]


class ShownParameters:
    """Parameters of any dtypes, and the values that they were given last.

    All are averaged in one type, the widest of theirs and at least float32: 16-bit parameters show a model of float32,
    rounded, so that averages lose nothing.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        """Begin with the values that the parameters have."""
        self._shown = FlatTensors(parameters, _widest(parameters))
        self._now = FlatTensors(parameters, _widest(parameters))
        self._shown.gather()

    @property
    def values(self) -> Array:
        """What the parameters were given last, after rounding; not to be changed."""
        return self._shown.array

    def change(self) -> Array:
        """Return what the program has changed since then, such as by an optimizer's step; valid until the next call."""
        self._now.gather()
        change = self._now.array
        return np.subtract(change, self._shown.array, out=change)

    def take_change(self) -> None:
        """Count the change as handed over: `change` is zero then."""
        self._shown.gather()

    def show(self, values: Array) -> None:
        """Give the parameters values, each rounded to its type."""
        np.copyto(self._shown.array, values)
        self._shown.scatter()
        self._shown.gather()


def _widest(parameters: Sequence[torch.Tensor]) -> torch.dtype:
    return reduce(torch.promote_types, (summed_in(parameter.dtype) for parameter in parameters))
