"""A parameter server of which a rank dies: a server, or a worker, whatever they do."""

from pathlib import Path

import pytest
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun
from nightly import in_turn

DEATHS = [
    ("pushes", "node", "bsp", 2),
    ("pushes", "node", "ssp:2", 0),
    ("pushes", "1", "bsp", 0),
    ("pushes", "1", "ssp:1", 3),
    ("pushes", "2", "bsp", 1),
    ("pushes", "node", "elastic:15", 1),
    ("pushes", "1", "elastic:15", 0),
    ("creation", "2", "bsp", 1),
    ("creation", "node", "bsp", 3),
    ("pulls", "1", "bsp", 0),
    ("pulls", "node", "bsp", 2),
    ("leaves", "1", "bsp", 0),
    ("leaves", "2", "asp", 2),
    ("leaves", "node", "ssp:2", 1),
    ("closing", "1", "bsp", 0),
    ("closing", "node", "bsp", 3),
    ("elastic", "1", "none", 0),
    ("elastic", "node", "none", 2),
    ("function", "1", "bsp", 0),
    ("function", "2", "asp", 1),
    ("function", "node", "asp", 0),
]


@pytest.mark.parametrize(("phase", "servers", "sync", "victim", "ranks_per_node"), in_turn(DEATHS, ["1", "2", "all"]))
def test_the_others_are_told_who_died(tmp_path, phase, servers, sync, victim, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    words = (phase, servers, sync, str(victim), str(victim))
    job = mpirun(4, "killed_server.py", *words, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)


@pytest.mark.parametrize("servers", ["node", "2"])
def test_a_worker_dies_in_the_middle_of_an_update(tmp_path, servers):
    """Of weights that ranks share: with a server it is the worker that was granted the work on its own gradient."""
    options = {"DEATH": str(tmp_path / "d"), "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    job = mpirun(3, "killed_in_update.py", servers, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, 1, 3)
