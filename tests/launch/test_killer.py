"""Whatever ranks do when one of them dies, by whatever signal, all others are told who it was, and soon.

In CI each phase has one shape, in turn; nightly each has all of them, seven times.
"""

from __future__ import annotations

import pytest
from killer import PHASES, RANKS, SHAPES, TOLD_WITHIN_S, Kill
from nightly import in_turn, nightly_unless


@pytest.mark.parametrize("repetition", nightly_unless(lambda repetition: repetition == 0, range(7)))
@pytest.mark.parametrize(("phase", "shape"), in_turn(PHASES, [*SHAPES]))
def test_all_others_are_told_who_died(phase, shape, repetition, tmp_path):
    seed = PHASES.index(phase) + list(SHAPES).index(shape) + repetition
    kill = Kill(phase, shape, seed)
    told = kill.run(tmp_path)
    for rank, survivor in told.items():
        assert survivor.error == "RankFailedError", (kill, rank, survivor)
        crashed = set(range(RANKS)) - {*told, kill.victim}  # by a fault of MPI itself: see Kill.run
        assert {*survivor.ranks} - crashed == {kill.victim}, (kill, rank, survivor)
        assert crashed or f"rank {kill.victim} died" in survivor.text, (kill, rank, survivor)
        assert survivor.after_s < TOLD_WITHIN_S, (kill, rank, survivor)
