"""Record the times of an optimizer's steps, if it has a timer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..support.step_timer import StepTimer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class StepTimes:
    """Record the time of each step, from one `step()` to the next, without the calls that wait for other ranks.

    Without a timer, record nothing.
    """

    def __init__(self, timer: StepTimer | None) -> None:
        if not isinstance(timer, StepTimer | None):
            raise TypeError(f"step_timer: expected a StepTimer or None, got {type(timer).__name__}")
        self._timer = timer

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context whose time is not recorded, for calls that wait for other ranks."""
        return contextlib.nullcontext() if self._timer is None else self._timer.excluded()

    def end_step(self) -> None:
        """End a step, and begin the next one."""
        if self._timer is not None:
            self._timer.lap()
