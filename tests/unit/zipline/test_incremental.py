"""The incremental form returns what a full solution returns, after every update."""

from __future__ import annotations

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.zipline import Incremental, zipline_linear


class Rows:
    """Rows, and the incremental form beside them."""

    def __init__(self, rows):
        self.rows = [np.asarray(row) for row in rows]
        self.solver = Incremental(self.rows)
        self.check()

    def update(self, worker, row):
        self.rows[worker] = row
        assert self.solver.update(worker, row) == self.solver.barrier
        self.check()

    def check(self):
        assert self.solver.barrier == zipline_linear(self.rows)


def drawn(rng, kind, workers):
    """A new row."""
    if kind == "paper":
        return pc.zipline.generate(1, 40, int(rng.integers(10**6)))[0]
    if kind == "ties":
        return np.cumsum(rng.integers(1, 3, rng.integers(1, 30)))
    if kind == "seconds":
        return np.cumsum(rng.random(rng.integers(1, 30)) + 0.1)
    if kind == "in step, sometimes":
        return np.arange(1, 60) * 100 + (0 if rng.random() < 0.8 else int(rng.integers(100)))
    interval = int(rng.integers(1, 2000)) if rng.random() < 0.2 else 1000  # "speeds"
    return np.cumsum(np.full(rng.integers(20, 200), interval))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7, 8, 33])
@pytest.mark.parametrize("kind", ["paper", "ties", "seconds", "in step, sometimes", "speeds"])
def test_random_updates(kind, workers):
    rng = np.random.default_rng(workers)
    rows = Rows([drawn(rng, kind, workers) for _ in range(workers)])
    for _ in range(60):
        rows.update(int(rng.integers(workers)), drawn(rng, kind, workers))


def test_as_the_controller_does():
    """Each push moves the row of its worker on: from the time of the push, with its newest interval."""
    rng = np.random.default_rng(5)
    pushed = rng.integers(0, 1000, 100)
    rows = Rows([time + 1250 * np.arange(1, 151) for time in pushed])
    for _ in range(300):
        worker = int(np.argmin(pushed))
        interval = int(rng.integers(1000, 1500))
        pushed[worker] += interval
        rows.update(worker, pushed[worker] + interval * np.arange(1, 151))


def test_a_barrier_that_becomes_much_longer_and_shorter():
    """Windows are kept up to a length; when none is left, all are made again."""
    row = 1000 * np.arange(1, 301)
    rows = Rows([row, row, row, row])
    for apart in (1, 500, 3, 250, 0, 499, 100_000, 0, 7):
        rows.update(2, row + apart)
        assert rows.solver.barrier.d == min(apart, 1000 - apart if apart < 1000 else apart % 1000)


def test_a_refused_update_changes_nothing():
    rows = Rows([[1, 5, 9], [2, 6, 10], [4, 8, 12]])
    before = rows.solver.barrier
    for worker, row, error in (
        (1, np.array([3, 2]), "row 1: expected increasing timestamps, got 2 after 3 at index 1"),
        (1, np.array([], int), "row 1: expected timestamps, got none"),
        (1, np.array([1.5]), "row 1: expected int64, as the other rows have, got float64"),
        (1, np.array([[1, 2]]), "row 1: expected an array of one dimension, got 2"),
        (3, np.array([1]), "worker: expected at most 2, got 3"),
        (-1, np.array([1]), "worker: expected at least 0, got -1"),
        ("1", np.array([1]), "worker: expected an integer, got '1'"),
    ):
        with pytest.raises((ValueError, TypeError)) as refused:
            rows.solver.update(worker, row)
        assert str(refused.value) == error
        assert rows.solver.barrier == before
    rows.update(0, np.array([3, 7]))


def test_what_it_was_made_of_may_change_afterwards():
    array = pc.zipline.generate(5, 10, 1)
    solver = Incremental(array)
    expected = zipline_linear(array)
    array[:] = 0
    row = np.array([1, 2, 3])
    assert solver.barrier == expected
    solver.update(0, row)
    expected = solver.barrier
    row[:] = 0
    assert solver.update(1, pc.zipline.generate(5, 10, 1)[1]) == expected


def test_a_row_may_be_a_view():
    solver = Incremental([[1, 5, 9], [2, 6, 10]])
    assert solver.update(1, np.array([3, 0, 8, 0])[::2]) == (9, 1, (2, 1))
