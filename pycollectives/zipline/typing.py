"""The types of rows, for annotations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
"""An array of `int64`."""

Timestamps = NDArray[np.int64 | np.float64]
"""An array of `int64` milliseconds or `float64` seconds."""

Rows = Timestamps | Sequence[Timestamps]
"""The timestamps of each worker: an (n, R) array, or n arrays of one dimension and any length."""
