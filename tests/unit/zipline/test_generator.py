"""The generated data is that of section 6.1 of the paper."""

from __future__ import annotations

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.zipline import generate


@pytest.mark.parametrize("history", [0, 1, 20])
def test_every_worker_keeps_its_interval(history):
    rows = generate(1000, 15, seed=1, history=history)
    assert (rows.shape, rows.dtype) == ((1000, 15), np.int64)
    intervals = np.diff(rows, axis=1)
    assert (intervals == intervals[:, :1]).all()
    assert (rows[:, 0] >= 1000).all()


def test_intervals_are_uniform_from_1000_to_1500_ms():
    intervals = np.diff(generate(100_000, 2, seed=2), axis=1)[:, 0]
    assert (intervals.min(), intervals.max()) == (1000, 1500)
    counts = np.bincount(intervals - 1000)
    expected = len(intervals) / 501
    assert np.sum((counts - expected) ** 2 / expected) < 500 + 5 * np.sqrt(2 * 500)  # chi square


def test_starts_are_uniform_from_10_to_50_ms():
    rows = generate(100_000, 2, seed=3, history=0)
    starts = 2 * rows[:, 0] - rows[:, 1]
    assert (starts.min(), starts.max()) == (10, 50)
    counts = np.bincount(starts - 10)
    expected = len(starts) / 41
    assert np.sum((counts - expected) ** 2 / expected) < 40 + 5 * np.sqrt(2 * 40)


def test_iteration_j_ends_at_j_intervals_after_the_start():
    rows = generate(50, 15, seed=4)
    at_start = generate(50, 15, seed=4, history=0)
    intervals = at_start[:, 1] - at_start[:, 0]
    starts = at_start[:, 0] - intervals
    assert (np.diff(rows, axis=1) == intervals[:, np.newaxis]).all()
    assert ((rows[:, 0] - starts) % intervals == 0).all()


def test_all_workers_are_at_the_same_time_when_the_slowest_has_made_its_history():
    rows = generate(50, 15, seed=5, history=20)
    intervals = rows[:, 1] - rows[:, 0]
    at_start = generate(50, 15, seed=5, history=0)
    starts = 2 * at_start[:, 0] - at_start[:, 1]
    now = (starts + 20 * intervals).max()
    last = rows[:, 0] - intervals
    assert (last <= now).all()
    assert (rows[:, 0] > now).all()
    assert last.max() == now  # of the slowest


def test_the_seed_decides():
    assert (generate(10, 5, seed=1) == generate(10, 5, seed=1)).all()
    assert (generate(10, 5, seed=1) != generate(10, 5, seed=2)).any()


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((0, 5, 1), ValueError, "n: expected at least 1, got 0"),
        ((5, 0, 1), ValueError, "R: expected at least 1, got 0"),
        ((5, 5, -1), ValueError, "seed: expected at least 0, got -1"),
        ((5.0, 5, 1), TypeError, "n: expected an integer, got 5.0"),
        ((5, 5, None), TypeError, "seed: expected an integer, got None"),
    ],
)
def test_refused(arguments, kind, text):
    with pytest.raises(kind) as refused:
        generate(*arguments)
    assert str(refused.value) == text


def test_the_history_is_refused_if_negative():
    with pytest.raises(ValueError, match="history: expected at least 0, got -1"):
        generate(5, 5, 1, history=-1)


def test_after_a_while_the_first_barrier_is_not_the_best():
    """Else GridScan, which begins with the first, would find it: at the start it does."""
    rows = generate(100, 15, seed=7)
    assert min(pc.zipline.zipline_linear(rows).iterations) > 0
    assert max(pc.zipline.zipline_linear(generate(100, 15, seed=7, history=0)).iterations) == 0
