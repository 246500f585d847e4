"""Paces of ranks, from their flight records."""

from __future__ import annotations

import pytest

from pycollectives.diagnostics.pace import paces


def document(rank, rounds, *, group="7", wait=None, collective=1):
    described = {"collective": collective, "name": "gradients", "state": "open"} | ({"wait": wait} if wait else {})
    record = {
        "rank": rank,
        "size": 2,
        "group": group,
        "since_call_s": 0.5,
        "collectives": [{"collective": 0, "name": "the communicator", "state": "open"}, described],
        "rounds": [{"collective": collective, "name": "gradients", **each} for each in rounds],
    }
    return {"pid": 100 + rank, "communicators": [record]}


def given(number, called, waited, *contributors):
    times = {"called_s": called, "given_s": called + waited}
    return {"round": number, "state": "given", "contributors": list(contributors), **times}


def test_steps_waits_and_absences():
    fast = document(0, [given(k, 10 + 2.0 * k, 0.5, 0, *([1] if k == 3 else [])) for k in range(4)])
    slow = document(1, [given(2, 9.0, 1.0, 0)], wait={"for": "flush"})
    first, second = paces([slow, fast])
    assert (first.group, first.collective, first.rank, first.pid) == ("7", "gradients", 0, 100)
    assert (first.step_s, first.waiting, first.absent, first.behind) == (2.0, 0.25, 0, 0)
    assert (first.since_s, first.waits_for) == (0.5, "")
    assert (second.rank, second.step_s, second.waiting) == (1, None, None)
    assert second.absent == 0.75, "of the rounds in the records of both"
    assert (second.behind, second.waits_for) == (1, "flush")


def test_a_round_that_was_not_received_is_no_call():
    rounds = [given(0, 1.0, 0.1, 0), {"round": 1, "state": "complete", "contributors": [1]}, given(2, 4.0, 0.1, 0)]
    (pace,) = paces([document(0, rounds)])
    assert pace.step_s == pytest.approx(3.0)
    assert pace.waiting == pytest.approx(0.1 / 3)
    assert pace.absent == pytest.approx(1 / 3)


def test_late_calls_are_calls():
    """They receive a round without waiting for it, and its record has no time of a call."""
    late = [{"round": k, "state": "given", "given_s": 1.0 + k, "contributors": [1]} for k in range(1, 4)]
    (pace,) = paces([document(0, [given(0, 1.0, 0.0, 0), *late, given(4, 4.5, 0.5, 0)])])
    assert pace.step_s == 1.0
    assert pace.waiting == pytest.approx(0.5 / 4)


def test_an_ended_collective_is_left_out():
    one = document(0, [given(0, 1.0, 0.0, 0)])
    one["communicators"][0]["collectives"][1]["state"] = "ended"
    assert paces([one]) == []


def test_collectives_without_contributors():
    (pace,) = paces([document(0, [{"round": 0, "state": "given", "called_s": 1.0}])])
    assert (pace.step_s, pace.absent, pace.behind) == (None, None, 0)
    assert paces([{"pid": 1, "communicators": []}]) == []


def test_communicators_are_apart():
    first, second = paces([document(0, [given(5, 1.0, 0.0, 0)]), document(0, [], group="8")])
    assert (first.group, second.group) == ("7", "8")
    assert second.behind == 0
