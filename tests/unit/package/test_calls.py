"""What the extension says of calls whose arguments do not fit (csrc/bindings/calls.h)."""

import numpy as np
import pytest

from pycollectives.support.native import core

WORK = {"work": np.ones((2, 2)), "calls": [2, 2]}
WRONG = [
    (lambda: core.GroupGenerator(), "GroupGenerator() needs the argument 'node_of'"),
    (lambda: core.GroupGenerator([0, 0], bogus=1), "GroupGenerator() got an unexpected argument 'bogus'"),
    (lambda: core.GroupGenerator([0], 1), "GroupGenerator() takes at most 1 arguments by position, got 2"),
    (lambda: core.GroupGenerator("x"), "GroupGenerator() cannot take 'x' as 'node_of'"),
    (lambda: core.plan_allreduce("ring", 0, 2), "plan_allreduce() needs the argument 'count'"),
    (lambda: core.plan_allreduce("ring", 0, 2, 3, count=3), "plan_allreduce() got two values for 'count'"),
    (lambda: core.GroupGenerator([0]).leave(1.5), "leave() cannot take 1.5 as 'worker'"),
    (lambda: core.simulate(size=2, **WORK, polic="x"), "expected options of a partial allreduce, got {'polic': 'x'}"),
]


@pytest.mark.parametrize(("call", "text"), WRONG, ids=[text for _, text in WRONG])
def test_arguments_that_do_not_fit(call, text):
    with pytest.raises(TypeError) as refused:
        call()
    assert str(refused.value) == text


def test_arguments_by_position_by_name_and_by_default():
    first = core.GroupGenerator([0, 0, 1, 1], size=2, seed=1)
    second = core.GroupGenerator(node_of=(0, 0, 1, 1), seed=1, size=2)
    assert [g.members for g in first.request(0)] == [g.members for g in second.request(worker=0, now=None)]
    assert core.GroupGenerator([0, 0, 0]).request(0)[0].members == (0, 1, 2)


def test_slices_compare_by_value():
    whole = core.ScheduleBuilder(0, 2).buffer(3)
    assert whole == whole.part(0, 3)
    assert whole != whole.part(0, 2)
    assert whole != 3
    with pytest.raises(TypeError):
        hash(whole)
