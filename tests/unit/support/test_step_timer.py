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
