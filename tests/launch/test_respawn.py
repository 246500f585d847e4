"""New processes take the numbers of dead ranks, and no value is lost."""

from __future__ import annotations

import pytest
from killer import WITH_RESPAWN
from launcher import launcher, mpirun
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

STEPS = 200


def job(ranks, spares, policy, *deaths, respawn=1, **env):
    options = {"PYC_STALL_WARNING": "20", **env}
    arguments = ("spares.py", spares, respawn, policy, STEPS, *deaths)
    return mpirun(ranks, *arguments, limit=60, options=WITH_RESPAWN, **options)


def check(outcome, members, new, policy="full"):
    """Check that every number is there at the end, those of `new` in new processes, with the same rounds."""
    assert outcome.status == 0
    for rank in range(members):
        (said,) = outcome.said(rank)
        assert said.startswith(f"new {rank in new} ")
        assert "same True uniform True" in said
        counts = [int(word) for word in said.split()[-members:]]
        for member in range(members):
            if policy == "full" or member not in new:
                assert counts[member] == STEPS


@pytest.mark.parametrize("moment", nightly_unless(lambda moment: moment == 1, range(4)))
@pytest.mark.parametrize(
    ("policy", "ranks_per_node"),
    nightly_unless(
        lambda of: of[0] != "solo" and of[1] != "1",
        [("full", "1"), ("full", "all"), ("majority", "2"), ("solo", "all")],
    ),
)
def test_ranks_are_replaced(policy, ranks_per_node, moment):
    """Two die one after the other: rank 0, which would be the donor, and another."""
    deaths = [f"0:0:{0.02 + 0.02 * moment:.2f}", "2:1:0.1"]
    check(job(4, 0, policy, *deaths, PYC_RANKS_PER_NODE=ranks_per_node), 4, (0, 2), policy)


def test_a_new_process_is_replaced():
    check(job(3, 0, "full", "1:0:0.1", "1:1:0.1", "1:2:0.1"), 3, (1,))


@pytest.mark.parametrize(
    ("policy", "ranks_per_node"),
    nightly_unless(
        lambda of: of == ("full", "2"), [("full", "1"), ("full", "2"), ("majority", "all"), ("solo", "all")]
    ),
)
def test_survivors_continue_while_a_process_starts_in_the_background(policy, ranks_per_node):
    """Rank 0, which would start the second one, is the first to die. Survivors make rounds without the dead rank."""
    deaths = ["0:0:0.1", "2:2:0.1"]
    outcome = job(4, 0, policy, *deaths, respawn="background", PYC_RANKS_PER_NODE=ranks_per_node)
    assert outcome.status == 0
    for rank in range(4):
        (said,) = outcome.said(rank)
        assert said.startswith(f"new {rank in (0, 2)} ")
        assert "same True uniform True" in said
        steps, *counts = (int(word) for word in said.split()[-5:])
        assert steps >= STEPS
        if policy == "full":
            assert (counts[1], counts[3]) == (steps, steps)
            assert max(counts[0], counts[2]) < steps, "no survivor waited"


@pytest.mark.nightly
def test_two_die_at_once():
    check(job(4, 0, "full", "1:0:0.1", "2:0:0.1"), 4, (1, 2))


def test_all_but_one_die():
    check(job(4, 0, "full", "0:0:0.1", "1:0:0.1", "2:0:0.1"), 4, (0, 1, 2))


def test_spares_come_first():
    """The spare takes the first number, and a new process the second."""
    check(job(4, 1, "full", "1:0:0.1", "0:1:0.1"), 3, (0,))


@pytest.mark.parametrize(
    ("how", "why"),
    nightly_unless(
        lambda of: of[0] in ("raises", "makes a second", "is not needed"),
        [
            (
                "raises",
                "a process that was started to replace a dead rank, cannot join the others and ends: its program",
            ),
            (
                "exits",
                "a process that was started to replace a dead rank, cannot join the others and ends: its program",
            ),
            ("of its world", "this process replaces a dead rank, and its MPI.COMM_WORLD contains no survivors"),
            ("makes a second", "this process replaces a dead rank, and its MPI.COMM_WORLD contains no survivors"),
            ("makes another", "expected the collective that the survivors made next"),
            ("is not needed", "cannot join the others and ends: the survivors continue without this process"),
        ],
    ),
)
def test_a_process_that_does_not_join_ends(how, why):
    """If it failed, another is started in its place, which fails too; the survivor continues alone."""
    outcome = mpirun(2, "respawned_fails.py", how, limit=60, options=WITH_RESPAWN)
    assert why in outcome.err
    assert outcome.said(0) == ["members (0,)"]
