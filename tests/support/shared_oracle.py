"""An oracle that is the same on every rank, computed once: by each rank for some of the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORLD = MPI.COMM_WORLD


def of_this_rank(
    oracle: Callable[[list[np.ndarray]], Sequence[list[np.ndarray]]], models: Sequence[np.ndarray], tail: int = 0
) -> list[np.ndarray]:
    """Return this rank's result of an oracle that treats elements independently; collective.

    The oracle takes models and returns a list of arrays for each rank. The last `tail` elements do not belong to the
    models, and are the same for any elements.
    """
    count = len(models[0])
    begin, end = (count * rank // WORLD.size for rank in (WORLD.rank, WORLD.rank + 1))
    parts = WORLD.alltoall(list(oracle([model[begin:end] for model in models])))
    whole = []
    for pieces in zip(*parts, strict=True):
        elements = [piece[: len(piece) - tail] for piece in pieces]
        whole.append(np.concatenate([*elements, pieces[0][len(pieces[0]) - tail :]]))
    return whole
