"""Simulate AD-PSGD in virtual time, where no rank waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def seconds_for_all(work: npt.NDArray[np.float64]) -> float:
    """Return the seconds until every rank has made its steps; `work`: seconds of shape (ranks, steps), float64."""
    return float(work.sum(axis=1).max())
