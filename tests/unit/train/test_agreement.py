"""Which settings ranks may say differently, and which are others: compared by ranks that are threads."""

from __future__ import annotations

import pytest

from pycollectives.support.errors import MismatchError
from pycollectives.testing import run_ranks
from pycollectives.train.agreement import require_same_settings
from pycollectives.train.settings import Settings


def compared(key, *values):
    """What the comparison raises on ranks each of which is given one of the values."""
    settings = [Settings.of({key: value}) for value in values]
    return run_ranks(
        len(values), lambda comm: require_same_settings(settings[comm.rank], comm, resume=False), return_exceptions=True
    )


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("optimizer", ["sgd,momentum=0.0,rate=0.1", "sgd,rate=0.1,momentum=0"]),
        ("load", ["one-late,work_ms=1000,late=1", "one-late,late=1.0,work=1"]),
        ("epochs", [10, 10.0]),
        ("settle_epochs", [2.0, 2]),
    ],
)
def test_the_same_in_other_words(key, values):
    assert compared(key, *values) == [None, None]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("load", ["trace,file=run.0", "trace,file=run"]),
        ("optimizer", ["sgd,rate=0.1", "sgd,rate=0.10001"]),
        ("optimizer", ["sgd,momentum=0", "sgd"]),
        ("epochs", [10, 10.5]),
    ],
)
def test_something_else(key, values):
    for error in compared(key, *values):
        assert isinstance(error, MismatchError)
        assert all(str(value) in str(error) for value in values)
