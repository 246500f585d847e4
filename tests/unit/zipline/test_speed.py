"""What our own algorithms gain at the size of the paper's largest instance, n = 1000 and R = 150.

CPU times, taken in turns and compared by their medians: other load on the machine takes no part in them.
"""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

import pycollectives as pc
from pycollectives.zipline import Incremental, zipline_linear, zipline_opt_bs

pytestmark = [pytest.mark.alone, pytest.mark.slow]

TURNS = 15


def seconds(call):
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def test_linear_and_incremental():
    rows = pc.zipline.generate(1000, 150, seed=7)
    solver = Incremental(rows)
    others = iter(enumerate(itertools.cycle(pc.zipline.generate(1000, 150, seed=8))))

    def update():
        number, row = next(others)
        solver.update(number, row)

    times = {"linear": [], "opt_bs": [], "update": []}
    for _ in range(TURNS):
        times["linear"].append(seconds(lambda: zipline_linear(rows)))
        times["opt_bs"].append(seconds(lambda: zipline_opt_bs(rows)))
        times["update"] += [seconds(update) for _ in range(10)]
    median = {name: statistics.median(of) for name, of in times.items()}
    print(median)
    assert median["linear"] < 0.020
    assert median["opt_bs"] >= 5 * median["linear"]
    assert median["linear"] >= 20 * median["update"]
