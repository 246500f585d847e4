"""Machines that say nothing: ranks 0 and 1 are on one, rank 2 on another, rank 3 on a third."""

import time

import pytest

import pycollectives as pc
from pycollectives.support.native import core

MACHINES = [0, 0, 1, 2]
LIMIT = 0.4


@pytest.fixture
def engines():
    """They are driven by the test alone: one that is not is on a machine that is lost."""
    engines = core.Engine.loopback(4, progress="caller")
    for engine in engines:
        engine.start_heartbeat(machines=MACHINES, limit=LIMIT)
    return engines


def drive(engines, seconds):
    """Let engines make progress for some time; what each was told, in their order."""
    errors = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(errors) < len(engines):
        for engine in engines:
            if engine.rank in errors:
                continue
            try:
                engine.advance()
            except pc.RankFailedError as error:
                errors[engine.rank] = error
        time.sleep(0.001)
    return errors


def test_machines_that_are_there_are_not_taken_for_lost(engines):
    assert drive(engines, 3 * LIMIT) == {}


def test_all_others_are_told_which_machine_is_silent(engines):
    errors = drive(engines[:3], 30)
    assert [list(errors[rank].ranks) for rank in range(3)] == [[3]] * 3
    first, told = sorted((str(errors[rank]) for rank in (0, 2)), key=lambda text: "died" in text)
    assert "nothing was heard from the machines of rank 3 for 0.4 s" in first
    assert "rank 3 died" in told


def test_a_machine_is_there_while_one_of_its_ranks_is(engines):
    """Here each rank takes itself for the lowest that runs: the engines of a process see no others."""
    assert drive(engines[1:], 3 * LIMIT) == {}


def test_who_was_away_says_of_nobody_that_he_was_silent(engines):
    assert drive(engines, LIMIT / 2) == {}
    time.sleep(2 * LIMIT)  # all are: a rank that goes on first has heard nothing for so long
    assert drive(engines, 3 * LIMIT) == {}


def test_a_rank_that_closes_is_not_taken_for_lost(engines):
    """Rank 3 says so while it waits for the others."""
    engines[3].abort()
    assert drive(engines, 3 * LIMIT) == {}
    for engine in engines[:3]:
        engine.abort()
    drive(engines, 3 * LIMIT)
    for engine in engines:
        engine.close(timeout=10)
