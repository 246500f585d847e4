"""Files of tests/mpi on several hosts, where node leaders exchange messages over TCP.

Adding one is an entry of the table.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
from on_hosts import run_mpi_tests


class Entry(NamedTuple):
    """A file of tests/mpi, the shapes of hosts to run it on, of which CI takes the first, and its environment."""

    file: str
    shapes: tuple[str, ...]
    environment: dict[str, str]


TABLE = [
    Entry("test_promises_mpi.py", ("2x3", "2x2", "4x1"), {"PYC_TEST_CASES": os.environ.get("PYC_TEST_CASES", "8")}),
    Entry("test_staged_allreduce.py", ("2x2",), {"PYC_CASES": "8"}),
    Entry("test_groups_mpi.py", ("2x2",), {}),
    Entry("test_pairwise_mpi.py", ("2x2", "4x1"), {}),
    Entry("test_neighborhood.py", ("2x2",), {}),
]


@pytest.mark.timeout(400)  # the job has a limit of its own
@pytest.mark.parametrize(
    ("entry", "shape"),
    [
        pytest.param(entry, shape, id=f"{entry.file}-{shape}", marks=[pytest.mark.nightly] if place else [])
        for entry in TABLE
        for place, shape in enumerate(entry.shapes)
    ],
)
def test_it_holds_on_hosts(entry, shape):
    job = run_mpi_tests(shape, entry.file, **entry.environment)
    assert job.status == 0, job
    assert " passed" in job.out, job
