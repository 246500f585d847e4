"""When a warm-up is over: the calls have stopped getting faster.

The first calls of a collective touch memory and open connections that later ones find ready: at 32 ranks without shared
memory and 4 MiB, the first eight take five times as long as those after them. How many calls that concerns depends on
the machine, the number of ranks and the size, so it is looked for.

Calls are taken in windows of WINDOW. The warm-up is over as soon as the median call of a window takes at least
STATIONARY of that of the window before: 16 calls where nothing gets faster. It ends after MOST calls in any case; what
is measured then is not called stationary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 8
MOST = 64
STATIONARY = 0.75  # windows of a random initiator differ by so much, and there is no harm in a few more calls


def is_stationary(latencies: Sequence[float]) -> bool:
    """Whether the calls have stopped getting faster; `latencies` of all calls so far, each the mean over ranks."""
    if len(latencies) < 2 * WINDOW or len(latencies) % WINDOW:
        return False
    before, last = np.median(np.reshape(latencies[-2 * WINDOW :], (2, WINDOW)), axis=1)
    return bool(last >= STATIONARY * before)
