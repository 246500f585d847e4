"""Limits of time."""

import math

from pycollectives.support.deadline import Deadline
from pycollectives.testing import run_ranks


def test_no_limit():
    for none in (None, math.inf):
        assert Deadline(none).remaining() is None
        assert not Deadline(none).passed


def test_run_ranks_without_a_limit():
    assert run_ranks(2, lambda comm: comm.rank, timeout=math.inf) == [0, 1]
