"""Steps of one rank."""

import pytest

import pycollectives as pc


def test_a_step_that_an_exception_ends_is_not_recorded():
    timer = pc.StepTimer()
    with pytest.raises(KeyError), timer:
        raise KeyError
    with timer:
        pass
    assert len(timer.seconds) == 1
    assert timer.seconds[0] >= 0


def test_blocks_cannot_be_nested():
    timer = pc.StepTimer()
    with timer, pytest.raises(RuntimeError, match="cannot be nested"):
        timer.__enter__()
    assert len(timer.seconds) == 1


def test_laps_leave_excluded_blocks_out(monkeypatch):
    """A step from 0 to 4, with nested blocks from 1 to 3.5; then one from 4 to 6."""
    moments = iter([0.0, 1.0, 1.5, 3.5, 4.0, 6.0])
    timer = pc.StepTimer()
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    timer.lap()
    with timer.excluded(), timer.excluded():
        pass
    timer.lap()
    timer.lap()
    assert timer.seconds == [1.5, 2.0]
