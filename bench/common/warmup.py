"""Detect the end of a warm-up, when calls stop getting faster.

The first calls of a collective touch memory and open connections for the later ones. At 32 ranks without shared memory
and 4 MiB, the first eight calls take five times as long as the following ones. The number of slow calls depends on the
machine, the number of ranks and the size, so it is detected.

Calls are grouped in windows of WINDOW. The warm-up is over when the median call of a window takes at least STATIONARY
times the median of the previous window, after 16 calls at the earliest. It ends after MOST calls in any case; the
measurement is then not marked as stationary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 8
MOST = 64
STATIONARY = 0.75  # windows with a random initiator differ by this factor; a few more calls do no harm


def is_stationary(latencies: Sequence[float]) -> bool:
    """Whether the calls have stopped getting faster; `latencies` of all calls so far, each the mean over ranks."""
    if len(latencies) < 2 * WINDOW or len(latencies) % WINDOW:
        return False
    before, last = np.median(np.reshape(latencies[-2 * WINDOW :], (2, WINDOW)), axis=1)
    return bool(last >= STATIONARY * before)
