"""The comparison of graces."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from grace import Phase, _at_equal_wait  # noqa: E402


def test_the_best_fixed_grace_waits_no_longer():
    fixed = [Phase(4.0, 0.001), Phase(6.0, 0.003), Phase(5.0, 0.005)]
    assert _at_equal_wait(fixed, 0.001) == 4
    assert _at_equal_wait(fixed, 0.002) == 5
    assert _at_equal_wait(fixed, 0.005) == 6, "a shorter wait has more contributors"
    assert _at_equal_wait(fixed, 0.009) == 6
