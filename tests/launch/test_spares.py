"""Spares take the numbers of dead ranks, and no value is lost."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import launcher, mpirun
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

RANKS, STEPS = 6, 200


def job(spares, policy, *deaths, **env):
    options = {"PYC_STALL_WARNING": "20", **env}
    return mpirun(
        RANKS, "spares.py", spares, 0, policy, STEPS, *deaths, limit=60, options=WITH_FAULT_TOLERANCE, **options
    )


def check(outcome, dead, spares, replaced, policy="full"):
    """Check the output of each rank: all have the same rounds, with every step of the survivors.

    Under "full" all ranks are in the same step, so every number has contributed once to each step.
    """
    assert outcome.status == 0
    members = RANKS - spares
    ended = [rank for rank in range(RANKS) if rank not in dead and (rank < members or outcome.said(rank))]
    assert len(ended) == members - len([rank for rank in dead if rank < members]) + replaced
    for rank in ended:
        (said,) = outcome.said(rank)
        assert "same True uniform True" in said
        counts = [int(word) for word in said.split()[-members:]]
        whole = policy == "full" and replaced == len(dead)
        for member in set(range(members)) - (set() if whole else set(dead)):
            assert counts[member] == STEPS


@pytest.mark.parametrize("moment", nightly_unless(lambda moment: moment == 1, range(6)))
@pytest.mark.parametrize(
    ("policy", "ranks_per_node"), [("full", "1"), ("full", "all"), ("majority", "2"), ("solo", "all")]
)
def test_ranks_are_replaced(policy, ranks_per_node, moment):
    """Two die one after the other: rank 0, which would be the donor, and another, perhaps while a spare joins."""
    first = 0.02 + 0.02 * moment
    deaths = [f"0:0:{first:.2f}", "2:1:0.1" if moment % 2 else f"2:0:{first + 0.01:.2f}"]
    outcome = job(2, policy, *deaths, PYC_RANKS_PER_NODE=ranks_per_node)
    replaced = sum("begun at" in "".join(outcome.said(spare)) for spare in (4, 5))
    assert replaced == 2 or (moment % 2 == 0 and "cannot join the others and ends" in outcome.err)
    check(outcome, (0, 2), 2, replaced, policy)


def test_a_spare_that_is_not_needed_ends():
    outcome = job(1, "full")
    check(outcome, (), 1, 0)
    assert outcome.err == ""


def test_more_ranks_die_than_there_are_spares():
    """The first is replaced, and the others continue without the second."""
    outcome = job(1, "full", "1:0:0.05", "3:1:0.1")
    check(outcome, (1, 3), 1, 1)


def test_a_spare_that_has_died_replaces_nobody():
    outcome = job(2, "full", "4:0:0.10", "1:0:0.40")
    check(outcome, (4, 1), 2, 1)
    assert outcome.said(5)


def test_all_members_die():
    """The spares end, as no survivor has the state."""
    outcome = job(5, "full", "0:0:0.05")
    assert all(not outcome.said(rank) for rank in range(RANKS))


def test_a_newcomer_that_makes_something_else_ends():
    """It prints the collective of the survivors, which continue without it."""
    outcome = mpirun(3, "other_newcomer.py", limit=60, options=WITH_FAULT_TOLERANCE)
    assert (
        "which replaces a dead rank, cannot join the others and ends: "
        "expected the collective that the survivors made next" in outcome.err
    )
    assert "'name': 'sums'" in outcome.err
    assert outcome.said(0) == ["members (0,)"]


def test_a_newcomer_whose_program_fails_ends():
    outcome = mpirun(3, "other_newcomer.py", "fails", limit=60, options=WITH_FAULT_TOLERANCE)
    assert "cannot join the others and ends: the data is not there" in outcome.err
    assert outcome.said(0) == ["members (0,)"]


def test_a_newcomer_that_restores_nothing_ends():
    outcome = mpirun(3, "other_newcomer.py", "restores nothing", limit=60, options=WITH_FAULT_TOLERANCE)
    assert "cannot join the others and ends: expected the survivors' calls first: Comm" in outcome.err
    assert outcome.said(0) == ["members (0,)"]
