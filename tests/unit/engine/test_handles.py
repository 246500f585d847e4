"""Waiting for several rounds."""

import threading
import time

import pytest

from pycollectives import Request, StallError, wait_all, wait_any


class Round(Request):
    """A handle that completes when told to."""

    default_timeout = None

    def __init__(self, name):
        self.name = name
        self.event = threading.Event()

    def test(self):
        return self.event.is_set()

    def wait(self, timeout=None):
        if not self.event.wait(timeout):
            raise StallError(f"{self.name}: missing rank 1")
        return f"info of {self.name}"


@pytest.fixture
def rounds():
    return [Round(name) for name in "abc"]


def complete_later(handle, seconds):
    timer = threading.Timer(seconds, handle.event.set)
    timer.start()
    return timer


def test_wait_all_keeps_the_order(rounds):
    for seconds, handle in zip((0.02, 0.01, 0.0), rounds, strict=True):
        complete_later(handle, seconds)
    assert wait_all(rounds, timeout=10) == ["info of a", "info of b", "info of c"]


def test_wait_all_of_none():
    assert wait_all([]) == []


def test_the_limit_of_wait_all_is_for_all_together(rounds):
    complete_later(rounds[0], 0.15)
    begin = time.monotonic()
    with pytest.raises(StallError, match="b: missing"):
        wait_all(rounds, timeout=0.2)
    assert time.monotonic() - begin < 0.3


def test_wait_all_reports_what_is_done_even_when_time_is_up(rounds):
    for handle in rounds:
        handle.event.set()
    assert len(wait_all(rounds, timeout=0)) == 3


def test_wait_any_gives_the_first_to_complete(rounds):
    complete_later(rounds[1], 0.02)
    assert wait_any(rounds, timeout=10) == 1


def test_wait_any_gives_the_lowest_of_several(rounds):
    rounds[1].event.set()
    rounds[2].event.set()
    assert wait_any(rounds) == 1


def test_wait_any_runs_out_of_time(rounds):
    begin = time.monotonic()
    with pytest.raises(StallError, match="a: missing rank 1"):
        wait_any(rounds, timeout=0.05)
    assert 0.05 <= time.monotonic() - begin < 5


def test_wait_any_does_not_burn_the_processor(rounds):
    before = time.process_time()
    with pytest.raises(StallError):
        wait_any(rounds, timeout=0.5)
    assert time.process_time() - before < 0.4


def test_wait_any_of_none():
    with pytest.raises(ValueError, match="at least one request"):
        wait_any([])


def test_wait_any_ignores_requests_that_are_inactive(rounds):
    rounds[0].active = False
    rounds[0].event.set()
    complete_later(rounds[2], 0.02)
    assert wait_any(rounds, timeout=10) == 2
    with pytest.raises(StallError, match="b: missing rank 1"):
        wait_any(rounds[:2], timeout=0.02)
    with pytest.raises(ValueError, match="only inactive ones"):
        wait_any(rounds[:1])
