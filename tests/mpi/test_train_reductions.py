"""The collective calls of a training, on all ranks."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from pycollectives.train import reductions

WORLD = MPI.COMM_WORLD


def test_objects_of_all_ranks():
    given = {"rank": WORLD.rank, "text": "x" * (10 * WORLD.rank), "none": None}
    expected = [{"rank": rank, "text": "x" * (10 * rank), "none": None} for rank in range(WORLD.size)]
    assert reductions.gathered(WORLD, given) == expected


def test_numbers_keep_their_type():
    total = reductions.reduced(WORLD, WORLD.rank)
    assert (type(total), total) == (int, WORLD.size * (WORLD.size - 1) // 2)
    newest = reductions.reduced(WORLD, WORLD.rank / 4, MPI.MAX)
    assert (type(newest), newest) == (float, (WORLD.size - 1) / 4)
    assert reductions.any_of(WORLD, WORLD.rank == WORLD.size - 1) is True
    assert reductions.any_of(WORLD, False) is False


def test_the_values_of_one_rank():
    for array in (np.full((2, 3), WORLD.rank, np.float32), np.array(WORLD.rank)):
        reductions.broadcast(WORLD, array, WORLD.size - 1)
        assert (array == WORLD.size - 1).all()
