"""A rank is killed whose arrays are on a (simulated) device: all others are told who, soon."""

import pytest
from devices import needs_cuda
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun
from nightly import nightly_unless

pytestmark = needs_cuda


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 0, range(4)))
@pytest.mark.parametrize("victim", [0, 2])
def test_the_others_are_told_who_died(tmp_path, victim, seed):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": "all"}
    job = mpirun(4, "killed_on_device.py", victim, seed, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 0, range(2)))
def test_the_others_are_told_who_died_and_average_without(tmp_path, seed):
    options = {"DEATH": str(tmp_path / "d")}
    job = mpirun(4, "killed_averaging_on_device.py", 2, seed, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, 2)


@pytest.mark.parametrize(("victim", "ranks_per_node"), [(0, 2), (3, 2), (2, 1)])
def test_ranks_of_other_nodes_are_told_who_died(tmp_path, victim, ranks_per_node):
    """A node leader, a rank that exchanges no messages, and one that is alone on its node."""
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": str(ranks_per_node)}
    job = mpirun(4, "killed_on_device.py", victim, 1, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)
