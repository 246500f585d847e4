"""Forecasts of advise, compared with measurements."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from advice import LOADS, methods  # noqa: E402

from pycollectives.simulation import workload  # noqa: E402
from pycollectives.simulation.advice import RESOLUTION, forecasts, rank_correlation  # noqa: E402
from pycollectives.train.registry import Choice  # noqa: E402
from pycollectives.train.settings import Settings  # noqa: E402


@pytest.mark.parametrize("ranks", [4, 8])
def test_every_method_has_a_forecast(ranks):
    work = np.random.default_rng(0).uniform(0.01, 0.02, (ranks, 20))
    assert {*methods(ranks)} <= {each.method for each in forecasts(work)}
    for text in methods(ranks).values():
        Settings.of({"method": text})


@pytest.mark.parametrize("name", LOADS)
def test_the_loads_differ_from_each_other(name):
    choice = Choice.parse(LOADS[name])
    options = {"work": 0.0, "skew": 0.0, "seed": 1, **choice.options}
    seconds = workload.make(choice.name, ranks=8, calls=66, **options)
    assert seconds.max() > 1.5 * seconds.min()
    assert seconds.max(axis=0).sum() < 10, "seconds of the synchronous method"


def test_only_pairs_that_the_measurement_tells_apart_count():
    near = 1 + RESOLUTION / 2
    assert rank_correlation([1.0, 2.0, 3.0], [near, 1.0, 10.0]) == 1
    assert rank_correlation([1.0, 1.0], [2.0, 1.0]) == 0, "the forecast does not tell them apart"
    assert rank_correlation([1.0, 2.0], [2.0, 1.0]) == -1
    assert rank_correlation([9.0, 8.0, 7.0, 6.0, 5.0, 99.0], [9.0, 8.0, 7.0, 6.0, 5.0, 1.0]) == 1, "the best five"
    assert rank_correlation([1.0], [1.0]) == 1
