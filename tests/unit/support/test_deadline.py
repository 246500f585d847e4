"""Limits of time."""

import math

from pycollectives.testing import run_ranks


def test_run_ranks_without_a_limit():
    assert run_ranks(2, lambda comm: comm.rank, timeout=math.inf) == [0, 1]
