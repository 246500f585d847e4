"""The operations of a call are made once, also by a rank that continues for another."""

import pytest

torch = pytest.importorskip("torch")

from pycollectives.support.deadline import Deadline  # noqa: E402
from pycollectives.torch.operations import Operations  # noqa: E402

DEADLINE = Deadline(None)


def recorded(made, count=3):
    return [lambda _, number=number: made.append(number) for number in range(count)]


def test_a_newcomer_makes_the_operations_that_the_donor_has_not_made():
    made = []
    operations = Operations()
    operations.call, operations.completed = "finish", 2
    operations.make("finish", DEADLINE, *recorded(made))
    assert made == [2]
    operations.make("finish", DEADLINE, *recorded(made))
    assert made == [2, 0, 1, 2]


def test_a_newcomer_that_makes_another_call_is_refused():
    made = []
    operations = Operations()
    operations.call, operations.completed = "finish", 2
    with pytest.raises(RuntimeError, match=r"^average: this rank replaces a dead one: call finish first, as"):
        operations.make("average", DEADLINE, *recorded(made))
    assert made == []


def test_the_count_is_that_of_the_call_under_way():
    seen = []
    operations = Operations()

    def fails(_):
        seen.append((operations.call, operations.completed))
        raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        operations.make("average", DEADLINE, *recorded([]), fails)
    assert seen == [("average", 3)]
    assert (operations.call, operations.completed) == (None, 0)
