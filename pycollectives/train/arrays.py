"""Functions for the flat arrays of a replica, which are NumPy arrays or, on a device, PyTorch tensors.

Most operators are the same for both, and so are most functions of the module that `module_of` returns.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def module_of(array: Any) -> Any:
    """Return NumPy or PyTorch: the module whose functions take an array."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def to_host(array: Any) -> NDArray[Any]:
    """Return an array's values as a NumPy array: the array itself on the host, a copy from a device."""
    values: NDArray[Any] = array if isinstance(array, np.ndarray) else array.cpu().numpy()
    return values


def assign(array: Any, values: NDArray[Any]) -> None:
    """Write values into an array."""
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        array.copy_(module_of(array).from_numpy(np.ascontiguousarray(values)))


@contextlib.contextmanager
def on_host(array: Any) -> Iterator[NDArray[Any]]:
    """Yield the values as a NumPy array, and copy changes back to `array` at the end of the block."""
    values = to_host(array)
    yield values
    if values is not array:
        assign(array, values)
