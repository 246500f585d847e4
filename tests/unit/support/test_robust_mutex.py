"""The mutex of a board, whose owner may die."""

import os
import signal
import threading

import pytest

import pycollectives as pc
from pycollectives import _testing

LIMIT = 10.0


def test_everybody_is_told_that_the_owner_died():
    """The first to come, and those after it, and the first again: nobody waits for ever."""
    mutex = _testing.RobustMutex()
    child = os.fork()
    if child == 0:
        mutex.lock()
        os._exit(0)
    os.waitpid(child, 0)
    told = []

    def come():
        for _ in range(2):
            with pytest.raises(pc.RankFailedError, match="died while it changed what all of them share"):
                mutex.lock()
            told.append(True)

    for _ in range(3):
        thread = threading.Thread(target=come, daemon=True)
        thread.start()
        thread.join(LIMIT)
    assert told == [True] * 6


def test_one_at_a_time():
    mutex = _testing.RobustMutex()
    log = []

    def enter():
        mutex.lock()
        log.append("second")
        mutex.unlock()

    mutex.lock()
    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join(0.1)
    log.append("first")
    mutex.unlock()
    thread.join(LIMIT)
    assert log == ["first", "second"]


def stopped_owner(mutex):
    """Fork a process that is stopped while it has the mutex."""
    child = os.fork()
    if child == 0:
        mutex.lock()
        os.kill(os.getpid(), signal.SIGSTOP)
        mutex.unlock()
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    return child


def test_whoever_waits_for_one_that_is_stopped_says_so(capfd):
    mutex = _testing.RobustMutex()
    child = stopped_owner(mutex)
    entered = []

    def come():
        mutex.lock()
        entered.append(True)
        mutex.unlock()

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    thread.join(3.0)
    assert not entered
    os.kill(child, signal.SIGCONT)
    thread.join(LIMIT)
    os.waitpid(child, 0)
    assert entered
    warning = f"pycollectives: waiting for 2 s for process {child}, which was stopped while it changed"
    assert warning in capfd.readouterr().err
