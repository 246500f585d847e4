"""The end of a `with` block: what is called, in which order, and the warning of data that is lost."""

from __future__ import annotations

import warnings

import pytest

import pycollectives as pc
from pycollectives.support.lifecycle import exit_context


class Closable:
    """Something that three contributions wait in, and its context; `refusing`: it cannot be closed in order."""

    name = "it"

    def __init__(self, *, refusing: bool = False) -> None:
        self.calls: list[str] = []
        self.announced: list[str] = []
        self.refusing = refusing
        self.engine = self

    @property
    def closed(self) -> bool:
        return "abort" in self.calls or (self.calls == ["close"] and not self.refusing)

    def announce(self, text: str) -> None:
        self.announced.append(text)

    def close(self) -> None:
        self.calls.append("close")
        if self.refusing:
            raise TimeoutError

    def abort(self) -> int:
        self.calls.append("abort")
        return 3

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, traceback) -> None:
        exit_context("it", kind, self, self, is_open=self.calls == [])


def raise_in(closable: Closable, calls: tuple[str, ...] = ()) -> None:
    with closable:
        closable.calls.extend(calls)
        raise KeyError


@pytest.fixture(autouse=True)
def no_other_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_block_that_ends_closes():
    closable = Closable()
    with closable:
        pass
    assert closable.calls == ["close", "abort"]  # which does nothing to what is closed
    assert closable.announced == []


def test_what_cannot_be_closed_is_aborted():
    closable = Closable(refusing=True)
    with pytest.raises(TimeoutError), closable:
        pass
    assert closable.calls == ["close", "abort"]


def test_an_exception_aborts_and_the_warning_points_to_the_block():
    closable = Closable()
    says = "^it ended with KeyError: closed without flush, 3 contributions discarded$"
    with pytest.warns(RuntimeWarning, match=says) as seen, pytest.raises(KeyError):
        raise_in(closable)
    assert closable.calls == ["abort"]
    assert closable.announced == ["left 'it' by KeyError"]
    first = raise_in.__code__.co_firstlineno
    assert (seen[0].filename, seen[0].lineno) == (__file__, first + 1)


def test_nothing_is_said_where_nothing_was_open():
    closable = Closable()
    with pytest.raises(KeyError):
        raise_in(closable, calls=("close",))
    assert closable.calls == ["close", "abort"]
    assert closable.announced == []


@pytest.mark.parametrize("error", [pc.MismatchError, pc.RankFailedError])
def test_nothing_is_announced_of_what_all_ranks_have(error):
    closable = Closable()
    with pytest.warns(RuntimeWarning), pytest.raises(error), closable:
        raise error("on all ranks")
    assert closable.calls == ["abort"]
    assert closable.announced == []
