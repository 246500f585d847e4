"""The examples in C and Cython, which call the library without the GIL, with mpi4py's communicator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_build import STRICT, built_by_rank_0, load
from mpi4py import MPI

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT = 30.0


@pytest.fixture(scope="module")
def examples():
    """The modules, by name."""
    sources = {EXAMPLES / "c" / "events.c": STRICT, EXAMPLES / "cython" / "jacobi.pyx": []}
    return {path.name.partition(".")[0]: load(path) for path in built_by_rank_0(MPI.COMM_WORLD.rank, sources)}


@pytest.mark.parametrize("policy", ["solo", "quorum"])
def test_events_are_counted_once(comm, examples, policy):
    with comm.partial_allreduce(np.zeros(1, np.int64), op=MPI.SUM, policy=policy, missed="sum") as total:
        total_of_partial, total_of_mpi = examples["events"].count(comm.mpi_comm, total, 20)
    assert total_of_partial == total_of_mpi == sum(20 * rank + 19 for rank in range(comm.size))


def test_jacobi(comm, examples):
    """Sweeps in Cython, flushes in Python: the solution is that of all equations, on all ranks."""
    n = 8 * comm.size
    b = np.linspace(1.0, 2.0, n)
    x = np.zeros(n)
    own = slice(8 * comm.rank, 8 * (comm.rank + 1))
    with comm.partial_allreduce(x, op=MPI.SUM, policy="solo", missed="sum") as changes:
        for _ in range(30):
            examples["jacobi"].sweep(changes, x, b, own.start, own.stop, 10)
            changes.flush(timeout=LIMIT)
            rest = changes.result.copy()
            rest[own] = 0
            x += rest
    matrix = 4 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=0, atol=1e-10)


def test_an_error_of_the_engine_is_pythons(comm, examples):
    ar = comm.partial_allreduce(np.zeros(2, np.int64), op=MPI.SUM)
    with pytest.raises(ValueError, match="contribute: expected 2 int64, got 1 int64"):
        examples["events"].count(comm.mpi_comm, ar, 1)
    ar.close(timeout=LIMIT)
