"""The step times of all ranks in a file."""

import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.simulation import workload

WORLD = MPI.COMM_WORLD


def shared_path(tmp_path, name):
    return WORLD.bcast(str(tmp_path / name))


@pytest.mark.parametrize("is_ours", [False, True])
def test_all_ranks_are_in_the_file(tmp_path, is_ours):
    """As many lines as the rank with the fewest steps has."""
    path = shared_path(tmp_path, "steps.csv")
    timer = pc.StepTimer()
    for _ in range(3 + WORLD.rank):
        with timer:
            time.sleep(0.002 * (1 + WORLD.rank))
    if is_ours:
        with pc.Communicator(WORLD) as comm:
            timer.save(comm, path)
    else:
        timer.save(WORLD, path)
    WORLD.Barrier()
    if WORLD.rank == 0:
        work = workload.read(Path(path))
        assert work.shape == (WORLD.size, 3)
        assert (work.min(axis=1) >= 0.002 * (1 + np.arange(WORLD.size))).all()
        np.testing.assert_allclose(work[0], timer.seconds[:3], rtol=1e-5)
    WORLD.Barrier()


def test_a_rank_without_steps(tmp_path):
    timer = pc.StepTimer()
    if WORLD.rank != WORLD.size - 1:
        with timer:
            pass
    with pytest.raises(ValueError, match=f"got none on ranks {WORLD.size - 1}$"):
        timer.save(WORLD, shared_path(tmp_path, "none.csv"))


def test_a_file_that_cannot_be_written(tmp_path):
    """All ranks raise."""
    timer = pc.StepTimer()
    with timer:
        pass
    with pytest.raises(OSError, match="no folder"):
        timer.save(WORLD, shared_path(tmp_path, "no folder/steps.csv"))
