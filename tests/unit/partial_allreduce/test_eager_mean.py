"""Eager-SGD's mean: by what it divides, and what a rank is owed at the end."""

from __future__ import annotations

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.partial_allreduce.eager_mean import EagerMean
from pycollectives.testing import run_ranks


@pytest.mark.parametrize(("divide_by", "expected"), [("world", 2.0), ("contributors", 6.0)])
def test_a_mean_is_over_all_ranks_or_over_those_in_the_round(divide_by, expected):
    """Rank 0 contributes alone; then the means of its two rounds are added up."""

    def program(comm):
        mean = EagerMean(comm, np.zeros(2), divide_by=divide_by, policy=pc.Solo())
        out = np.zeros(2)
        if comm.rank == 0:
            mean.contribute(np.full(2, 6.0)).wait(timeout=30.0)
            assert mean.write_to(out) is out
            mean.contribute(np.full(2, 6.0)).wait(timeout=30.0)
            mean.add_to(out)
        mean.flush(timeout=30.0)
        mean.leave()
        return out.tolist()

    alone = [2 * expected] * 2
    assert run_ranks(3, program) == [alone, [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(("missed", "owed"), [("latest", False), ("sum", True)])
def test_a_rank_is_owed_rounds_that_it_missed_if_they_are_summed(missed, owed):
    """Nothing waits when the ranks flush: rank 0 has its mean, and rank 1 has missed that round."""

    def program(comm):
        mean = EagerMean(comm, np.zeros(1), missed=missed, policy=pc.Solo())
        if comm.rank == 0:
            mean.contribute(np.full(1, 4.0)).wait(timeout=30.0)
        is_owed = mean.flush(timeout=30.0) is not None
        newest = mean.write_to(np.empty(1)).tolist()
        mean.leave()
        return is_owed, newest if is_owed else None

    assert run_ranks(2, program) == [(False, None), (owed, [2.0] if owed else None)]


def test_every_rank_is_owed_what_one_had_waiting():
    """Rank 1 is late: its gradient waits for a round that nobody starts."""

    def program(comm):
        mean = EagerMean(comm, np.zeros(1), policy=pc.Solo())
        for rank, value in ((0, 2.0), (1, 4.0)):
            if comm.rank == rank:
                mean.contribute(np.full(1, value)).wait(timeout=30.0)
            comm.is_same_on_all_ranks(b"one after the other")
        is_owed = mean.flush(timeout=30.0) is not None
        newest = mean.write_to(np.empty(1)).tolist()
        mean.leave()
        return is_owed, newest

    assert run_ranks(2, program) == [(True, [2.0])] * 2


def test_another_average_is_refused():
    with pytest.raises(ValueError, match="divide_by: expected 'world' or 'contributors', got 'all'"):
        EagerMean(None, np.zeros(1), divide_by="all")
