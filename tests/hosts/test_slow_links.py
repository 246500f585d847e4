"""Links of 100 Mbit/s: results are as right as over faster ones, and take as long as the bytes need."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_hosts import launched

PROGRAM = Path(__file__).parent / "programs" / "rounds_per_second.py"
ROUNDS, MBITS = 10, 8  # each round sends 1 MB from each host


def seconds(job) -> float:
    assert job.status == 0, job
    return float(job.said(0)[0])


@pytest.mark.timeout(400)  # two jobs, each with a limit of its own
def test_a_slow_link_slows():
    fast = seconds(launched("2x2", PROGRAM, ROUNDS))
    slow = seconds(launched("2x2", PROGRAM, ROUNDS, rate="100mbit"))
    needed = ROUNDS * MBITS / 100
    assert 0.8 * needed < slow < 10 * needed, (fast, slow)
    assert fast < slow, (fast, slow)
