"""An oracle that every rank would compute alike, computed once: by each rank for some of the elements."""

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
    """Return what an oracle that treats elements alike says of this rank; collective.

    It is given models and returns a list of arrays for each rank. Their last `tail` elements are not of the models, and
    the same whatever elements it is given.
    """
    count = len(models[0])
    begin, end = (count * rank // WORLD.size for rank in (WORLD.rank, WORLD.rank + 1))
    parts = WORLD.alltoall(list(oracle([model[begin:end] for model in models])))
    whole = []
    for pieces in zip(*parts, strict=True):
        elements = [piece[: len(piece) - tail] for piece in pieces]
        whole.append(np.concatenate([*elements, pieces[0][len(pieces[0]) - tail :]]))
    return whole
