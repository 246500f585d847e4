"""Record signals that end training, from the beginning of the program, before MPI starts."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class Signals:
    """Records whether this process has received SIGUSR1 or SIGTERM. Create the object in the main thread."""

    def __init__(self) -> None:
        self._sent = False
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        """Whether a signal has arrived since creation."""
        return self._sent

    def ignore(self) -> None:
        """Ignore the signals: the training has ended, and Python removes its handlers before it finalizes MPI."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._sent = True
