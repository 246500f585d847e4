"""Soaks: a few seconds of each on two nodes, and nightly a few thousand rounds in every shape.

The long ones are `mpirun -n 4 python tests/support/soak.py --rounds 100000` and
`mpirun -n 8 python tests/support/soak_pairwise.py --exchanges 1000000`, `soak_hop.py --iterations 100000` and
`soak_parameter_server.py --pushes 100000`.
"""

import sys
from pathlib import Path

import pytest
from launcher import environment, launcher, run

SUPPORT = Path(__file__).parents[1] / "support"

SOAKS = {  # program: options, and the seconds after which it stops in any case
    "soak.py": (["--rounds", 6000], 25),
    "soak_pairwise.py": (["--exchanges", 6000], 5),
    "soak_hop.py": (["--iterations", 6000], 6),
    "soak_parameter_server.py": (["--pushes", 4000, "--stretch", 40], 8),
}


def soak(program, seconds, ranks_per_node):
    options = [*SOAKS[program][0], "--seconds", seconds, "--seed", 7]
    command = [*launcher(), "-n", "4", sys.executable, str(SUPPORT / program), *map(str, options)]
    outcome = run(command, limit=110, env=environment(PYC_RANKS_PER_NODE=ranks_per_node))
    assert outcome.status == 0
    assert "soak: passed: 4 ranks" in outcome.out


@pytest.mark.parametrize("program", SOAKS)
def test_a_few_seconds(program):
    soak(program, 4, "2")


@pytest.mark.nightly
@pytest.mark.parametrize("ranks_per_node", ["1", "2", "all"])
@pytest.mark.parametrize("program", SOAKS)
def test_a_few_thousand(program, ranks_per_node):
    soak(program, SOAKS[program][1], ranks_per_node)
