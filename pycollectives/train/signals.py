"""Signals that end a training: taken note of from the beginning of the program, before MPI is there."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Signals"]

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class Signals:
    """Whether this process has been sent SIGUSR1 or SIGTERM since it was made; by the main thread."""

    def __init__(self) -> None:
        self._sent = False
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        """Whether it has been sent one."""
        return self._sent

    def ignore(self) -> None:
        """From now on: what has ended cannot be stopped, and Python gives up its handlers before it leaves MPI."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._sent = True
