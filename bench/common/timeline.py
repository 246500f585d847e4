"""When a worker computed and when it synchronised, and what that says of a window of time.

Workers make different numbers of iterations, and none waits for others at the end. So all run until a common deadline,
each finishes the iteration that spans it, and figures are of the window before it, in which everybody is running. The
iterations that span the ends of the window count by the part that lies in it: a worker with few of them would be
measured too slow by up to one of them otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Seconds since the start of all workers."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Timeline:
    """One worker's iterations; seconds since the start of all workers.

    An iteration lasts from the end of the one before to the end of its synchronisation.
    """

    begins: Floats  # of its synchronisations
    ends: Floats

    def iterations_at(self, instant: float) -> float:
        """How many were done, the unfinished one by the part of its time that is over."""
        return float(np.interp(instant, np.concatenate([[0.0], self.ends]), np.arange(len(self.ends) + 1.0)))

    def iterations_per_s(self, window: Window) -> float:
        return (self.iterations_at(window.end) - self.iterations_at(window.begin)) / window.seconds

    def sync_fraction(self, window: Window) -> float:
        """The share of the window in which it synchronises: waits for its group and averages."""
        begins = np.clip(self.begins, window.begin, window.end)
        ends = np.clip(self.ends, window.begin, window.end)
        return float((ends - begins).sum() / window.seconds)

    def within(self, window: Window) -> NDArray[np.bool_]:
        """The iterations that ended in the window; if none did, all."""
        ended = (self.ends > window.begin) & (self.ends <= window.end)
        return ended if ended.any() else np.ones(len(self.ends), np.bool_)

    def latencies(self, window: Window) -> Floats:
        """Seconds of the synchronisations of these iterations."""
        return (self.ends - self.begins)[self.within(window)]

    def computations(self, window: Window) -> Floats:
        """Seconds of their computing."""
        return (self.begins - np.concatenate([[0.0], self.ends[:-1]]))[self.within(window)]
