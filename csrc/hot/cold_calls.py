"""Time a call of a partial allreduce, with warm and with cold caches; README.md says what to compare.

    python csrc/hot/cold_calls.py [--calls N] [--count N] [--flush-mib N]

One rank in one process, so that nothing but the library's own work is timed. Between cold calls the program writes to
an array larger than the caches.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import pycollectives as pc
from pycollectives.testing import loopback

WARM_UP = 100  # calls


def median_ns(collective: pc.PartialAllreduce, x: np.ndarray, calls: int, flushed: np.ndarray | None) -> float:
    """Median duration of a call; before each, `flushed` (if any) is written to."""
    out = np.empty_like(x)
    durations = []
    for _ in range(calls):
        if flushed is not None:
            flushed += 1
        start = time.perf_counter_ns()
        collective.allreduce(x, out)
        durations.append(time.perf_counter_ns() - start)
    return statistics.median(durations)


def main() -> None:
    """Print one line: nanoseconds per call, warm and cold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000, help="timed calls of each kind")
    parser.add_argument("--count", type=int, default=1, help="float32 elements of a contribution")
    parser.add_argument("--flush-mib", type=int, default=64, help="larger than the last-level cache")
    options = parser.parse_args()

    x = np.ones(options.count, dtype=np.float32)
    flushed = np.zeros(options.flush_mib << 20, dtype=np.uint8)
    with loopback(1)[0] as comm, comm.partial_allreduce(like=x, policy=pc.Solo()) as collective:
        median_ns(collective, x, WARM_UP, None)
        warm = median_ns(collective, x, options.calls, None)
        cold = median_ns(collective, x, options.calls, flushed)
    print(f"ns per call: warm {warm:.0f}, cold {cold:.0f}  ({options.calls} calls, {options.count} float32)")


if __name__ == "__main__":
    main()
