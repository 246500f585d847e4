"""The oracle of the property tests finds what is wrong: records of a good run are broken, one promise at a time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from oracle import Case, Log, Marks, Reply, check, designated_are_uniform

import pycollectives as pc

CASE = Case(size=3, calls=2, policy=pc.Quorum(2), missed="sum", history=1)
MARKS = Marks(CASE)


def total(*which):
    return sum((MARKS.contribution(rank, j) for rank, j in which), np.zeros(CASE.count, np.int64))


def good():
    """Round 0: ranks 0 and 1; round 1: ranks 1 and 2 (2 was not in time for round 0);
    then rank 0 calls late, and a flush delivers what it brought.
    """
    reply = {"late": False, "included": True, "staleness": 0, "missed": 0, "overrun": False}
    first = {"round": 0, "initiator": 1, "contributors": (0, 1), "active": 2}
    second = {"round": 1, "initiator": 1, "contributors": (1, 2), "active": 2}
    flush = {"round": 2, "initiator": 0, "contributors": (0,), "active": 0}
    r0, r1, r2 = total((0, 0), (1, 0)), total((1, 1), (2, 0)), total((0, 1))
    ended = {
        "contribution": None,
        "late": False,
        "included": False,
        "staleness": 0,
        "missed": 0,
        "overrun": False,
        "result": r2,
    }
    return [
        Log(
            0,
            2,
            [
                Reply(contribution=0, **first, **reply, result=r0),
                Reply(contribution=1, **second, **{**reply, "late": True, "included": False}, result=r1),
                Reply(**flush, **{**ended, "included": True}),
            ],
        ),
        Log(
            1,
            2,
            [
                Reply(contribution=0, **first, **reply, result=r0),
                Reply(contribution=1, **second, **reply, result=r1),
                Reply(**flush, **ended),
            ],
        ),
        Log(
            2,
            1,
            [Reply(contribution=0, **second, **{**reply, "missed": 1}, result=r0 + r1), Reply(**flush, **ended)],
        ),
    ]


def broken(rank, call, **changed):
    logs = good()
    logs[rank].replies[call] = dataclasses.replace(logs[rank].replies[call], **changed)
    return logs


def test_a_good_run_passes():
    rounds = check(CASE, good())
    assert [seen.flush for seen in rounds.values()] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rank": 1, "call": 1, "contributors": (0, 1)}, "another rank"),
        ({"rank": 1, "call": 1, "initiator": 2}, "another rank"),
        ({"rank": 1, "call": 1, "active": 1}, "another rank"),
        ({"rank": 1, "call": 1, "result": total((1, 1), (2, 0), (0, 1))}, "differ"),
        ({"rank": 0, "call": 0, "missed": 1}, "old round"),
        ({"rank": 2, "call": 0, "missed": 0}, "missed rounds"),
        ({"rank": 2, "call": 0, "overrun": True}, "overrun"),
        ({"rank": 0, "call": 0, "included": False}, "included"),
        ({"rank": 0, "call": 1, "included": True}, "included"),
        ({"rank": 0, "call": 0, "staleness": 1}, "staleness"),
        ({"rank": 2, "call": 0, "result": total((0, 0), (1, 0), (1, 1))}, "not the sum"),
        ({"rank": 0, "call": 2, "round": 1}, "old round|missed"),
    ],
    ids=lambda value: str({k: v for k, v in value.items() if k != "result"}) if isinstance(value, dict) else "",
)
def test_one_wrong_word(change, text):
    with pytest.raises(AssertionError, match=text):
        check(CASE, broken(**change))


def changed_everywhere(number, **changed):
    logs = good()
    for log in logs:
        log.replies = [dataclasses.replace(t, **changed) if t.round == number else t for t in log.replies]
    return logs


@pytest.mark.parametrize(
    ("number", "changed", "text"),
    [
        (0, {"contributors": (0, 1, 2)}, "not those in the result"),
        (0, {"contributors": (1, 0)}, "not in order"),
        (0, {"initiator": 2}, "initiator's data"),
        (0, {"active": 1}, "active"),
        (0, {"result": total((0, 0), (1, 0), (1, 0))}, "multiplicity"),
        (0, {"result": total((0, 0), (1, 0), (1, 1))}, "is in rounds 0 and 1"),
        (2, {"result": total(), "contributors": ()}, "never delivered"),
        (2, {"result": total((2, 1)), "contributors": (2,)}, "never contributed"),
    ],
    ids=str,
)
def test_a_wrong_round_that_all_ranks_agree_on(number, changed, text):
    with pytest.raises(AssertionError, match=text):
        check(CASE, changed_everywhere(number, **changed))


def test_fewer_than_the_quorum():
    with pytest.raises(AssertionError, match="quorum of 3"):
        check(dataclasses.replace(CASE, policy=pc.Quorum(3)), good())


def test_a_synchronous_round_without_everybody():
    with pytest.raises(AssertionError, match="without all ranks"):
        check(dataclasses.replace(CASE, policy=pc.Full()), good())


def test_a_rank_absent_for_too_long():
    with pytest.raises(AssertionError, match="is absent from 1 rounds"):
        check(dataclasses.replace(CASE, max_staleness=0), good())


def test_late_data_that_was_to_be_dropped():
    with pytest.raises(AssertionError, match="late, yet delivered"):
        check(dataclasses.replace(CASE, late="drop"), good())


@pytest.mark.parametrize("op", ["SUM", "PROD", "MIN", "MAX", "AVG"])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8"])
def test_marks_are_found_in_any_reduction(op, dtype):
    case = Case(size=3, calls=2, op=op, dtype=dtype, tiles=2)
    marks = Marks(case)
    which = frozenset({(0, 1), (2, 0)})
    reduce = {"SUM": np.add, "AVG": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum}[op]
    result = reduce.reduce([marks.contribution(*one).astype("f8") for one in sorted(which)])
    result = (result / 2 if op == "AVG" else result).astype(dtype)
    assert marks.contents(result, (0, 2)) == which


def test_uniformity():
    assert designated_are_uniform([k % 5 for k in range(1000)], 5)
    assert not designated_are_uniform([k % 4 for k in range(1000)], 5)
    assert not designated_are_uniform([0] * 600 + [1] * 400, 2)
