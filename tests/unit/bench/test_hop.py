"""The parts of `bench/hop.py` without MPI."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from common.hop import Delays, HopCell, Outcome

from pycollectives.simulation.hop import HopSummary

IDEAL = HopSummary(10.0, 1, 0)


def cell_of(*starts: float) -> HopCell:
    outcomes = [
        Outcome(start, [(0.1 * k, rank, k) for k in range(10)], 1.0, 0, 0.5, 1.0, 1.0)
        for rank, start in enumerate(starts)
    ]
    return HopCell.of("standard", Delays(), outcomes, IDEAL, 10)


def test_a_rank_that_starts_late_is_not_fast():
    assert cell_of(7.0, 7.0).summary.iterations_per_s == pytest.approx(10)
    assert cell_of(7.0, 7.5).summary.iterations_per_s == pytest.approx(10 / 1.25)
    assert cell_of(7.0, 7.55).summary.max_gap == 6


def test_clocks_of_several_machines_are_not_compared():
    assert cell_of(7.0, 900.0).summary == cell_of(7.0, 7.0).summary
