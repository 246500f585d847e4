"""Ctrl-C waits for the end of a block."""

import signal

import pytest

from pycollectives.support.interrupts import interrupts_later


def test_an_interrupt_comes_at_the_end_of_the_block():
    reached = False
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_later():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is handler
