"""Ranks that are killed: all others are told who, soon, and nobody is given a wrong result.

Open MPI ends a job one of whose ranks dies, unless it is started with fault tolerance.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from killer import TOLD_WITHIN_S, WITH_FAULT_TOLERANCE, check_told
from launcher import PROGRAMS, environment, launcher, mpirun, run
from nightly import nightly_unless


def seeds(number):
    """Of each kind one is in CI: tests/launch/test_killer.py kills in more phases."""
    return pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 0, range(number)))


@seeds(4)
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("phase", ["before", "asleep", "working", "solo"])
def test_the_others_are_told_who_died(tmp_path, phase, seed, victim):
    job = mpirun(
        4, "killed.py", phase, str(victim), str(seed), limit=60, options=WITH_FAULT_TOLERANCE, DEATH=str(tmp_path / "d")
    )
    check_told(job, victim)


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_ranks_of_another_node_are_told(tmp_path, victim):
    """Also those who exchange no messages themselves."""
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": "2"}
    job = mpirun(4, "killed.py", "working", str(victim), "1", limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)


@seeds(3)
@pytest.mark.parametrize("call", ["sync", "preduce"])
def test_the_others_of_a_group_are_told_who_died(tmp_path, call, seed):
    job = mpirun(
        4, "killed_in_group.py", call, "2", str(seed), limit=60, options=WITH_FAULT_TOLERANCE, DEATH=str(tmp_path / "d")
    )
    check_told(job, 2)


def test_the_memory_of_a_dead_member_cannot_be_opened(tmp_path):
    job = mpirun(
        *(3, "killed_after_arrival.py"),
        limit=60,
        options=WITH_FAULT_TOLERANCE,
        DEATH=str(tmp_path / "d"),
        PYC_RANKS_PER_NODE="all",
    )
    check_told(job, 2, ranks=3)


@pytest.mark.parametrize("call", ["create", "is_same_on_all_ranks"])
@pytest.mark.parametrize("ranks_per_node", [3, 1])
def test_what_is_left_open_by_those_who_were_told(ranks_per_node, call):
    """They end without another error, and their own exception is kept."""
    job = mpirun(3, "killed_elsewhere.py", ranks_per_node, call, limit=60, options=WITH_FAULT_TOLERANCE)
    for rank in (0, 2):
        text, kept, end = job.said(rank)
        assert "rank 1 died" in text, job
        assert kept == "KeyError('mine')", job
        assert end == "end", job
    assert "Traceback" not in job.err, job
    assert job.err.count("the program ends with a communicator that is not closed") == 2, job


@pytest.mark.alone
def test_nothing_stays_behind_in_shared_memory(tmp_path):
    """Without fault tolerance the launcher ends the job."""
    before = shared_memory()
    program = [sys.executable, str(PROGRAMS / "killed.py"), "4", "before", "1", "0"]
    job = run([*launcher(), "-n", "4", *program], limit=60, env=environment(DEATH=str(tmp_path / "d")))
    assert job.status != 0, job
    assert job.seconds < 30, job
    assert shared_memory() <= before, job


def shared_memory() -> set[str]:
    """Return the names that there are, without what Open MPI itself may forget."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("sm_segment.")}


@seeds(2)
@pytest.mark.parametrize("ranks_per_node", ["all", "1", "2"])
def test_neighbors_of_a_dead_rank_are_told_and_all_go_on(tmp_path, ranks_per_node, seed):
    """In a ring of 5, ranks 1 and 3 average with rank 2. Others are told if they average with ranks of other nodes."""
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    job = mpirun(5, "killed_in_pair.py", "2", str(seed), limit=60, options=WITH_FAULT_TOLERANCE, **options)
    for rank in (1, 3):
        seconds, text, *counts, end = job.said(rank)
        assert float(seconds.removesuffix(" s")) < TOLD_WITHIN_S, job
        assert text.startswith(("(2,) ", "[2] ")), job
        assert "rank 2 died" in text, job
        assert len(counts) == 3, job  # told once
        assert end == "end", job
    for rank in (0, 1, 3, 4):
        steps, finite, _, end = job.said(rank)[-4:]
        assert int(steps.removeprefix("steps ")) > 50, job
        assert finite == "finite True", job
    for rank in (0, 4):
        told = job.said(rank)[:-4]
        if ranks_per_node == "all":
            assert told == [], job
        else:
            assert "models are averaged with ranks of other nodes no more" in told[1], job


@pytest.mark.parametrize("ranks_per_node", ["all", "1", "2"])
def test_a_death_in_equalize_is_told_once(tmp_path, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    job = mpirun(4, "killed_in_equalize.py", "2", limit=60, options=WITH_FAULT_TOLERANCE, **options)
    for rank in (0, 1, 3):
        assert job.said(rank) == ["[2]", "told 1", "end"], job
