"""A short version of the soak; the long one is `mpirun -n 4 python tests/support/soak.py --rounds 100000`."""

import sys
from pathlib import Path

from launcher import environment, launcher, run

SOAK = Path(__file__).parents[1] / "support" / "soak.py"


def test_a_few_thousand_rounds():
    command = [*launcher(), "-n", "4", sys.executable, str(SOAK), "--rounds", "6000", "--seconds", "25", "--seed", "7"]
    outcome = run(command, limit=110, env=environment())
    assert outcome.status == 0, outcome
    assert "soak: passed: 4 ranks" in outcome.out, outcome
