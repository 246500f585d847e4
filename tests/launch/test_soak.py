"""Short versions of the soaks; the long ones are `mpirun -n 4 python tests/support/soak.py --rounds 100000` and
`mpirun -n 8 python tests/support/soak_pairwise.py --exchanges 1000000`, `soak_hop.py --iterations 100000` and
`soak_parameter_server.py --pushes 100000`.
"""

import sys
from pathlib import Path

import pytest
from launcher import environment, launcher, run

SUPPORT = Path(__file__).parents[1] / "support"


def soak(program, *options):
    command = [*launcher(), "-n", "4", sys.executable, str(SUPPORT / program), *map(str, options), "--seed", "7"]
    outcome = run(command, limit=110, env=environment())
    assert outcome.status == 0, outcome
    assert "soak: passed: 4 ranks" in outcome.out, outcome


def test_a_few_thousand_rounds():
    soak("soak.py", "--rounds", 6000, "--seconds", 25)


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_a_few_thousand_averages_in_pairs(ranks_per_node):
    soak("soak_pairwise.py", "--exchanges", 6000, "--seconds", 5, "--ranks-per-node", ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_a_few_thousand_iterations_of_hop(ranks_per_node):
    soak("soak_hop.py", "--iterations", 6000, "--seconds", 6, "--ranks-per-node", ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_a_few_thousand_pushes_to_parameter_servers(ranks_per_node):
    options = ["--pushes", 4000, "--stretch", 40, "--seconds", 8, "--ranks-per-node", ranks_per_node]
    soak("soak_parameter_server.py", *options)
