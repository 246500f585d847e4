"""Every exact algorithm finds the barrier that a search of all sets finds; the heuristics find none that is better."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.zipline import Incremental, full_grid_scan, grid_scan, naive, zipline_linear

EXACT = [pc.zipline.zipline_linear, pc.zipline.zipline, pc.zipline.zipline_opt, pc.zipline.zipline_opt_bs]
HEURISTIC = [grid_scan, full_grid_scan]
CASES = 1000


def exact_barriers(rows):
    return [*(algorithm(rows) for algorithm in EXACT), Incremental(rows).barrier]


def small_rows(rng):
    """Up to 4 workers with up to 4 points: few different times, so many ties; or many, so none; or all alike."""
    workers = int(rng.integers(1, 5))
    lengths = rng.integers(1, 5, workers) if rng.random() < 0.7 else [int(rng.integers(1, 5))] * workers
    longest = int(rng.choice([2, 5, 1000]))
    rows = [rng.integers(-20, 20) + np.cumsum(rng.integers(1, longest, length)) for length in lengths]
    if rng.random() < 0.1:
        rows = [rows[0]] * workers
    if rng.random() < 0.5:
        rows = [row * 0.1 for row in rows]  # not exact in binary: differences are rounded
    return np.array(rows) if len(set(map(len, rows))) == 1 and rng.random() < 0.5 else rows


def assert_is_barrier(rows, barrier):
    """Its points are one of each worker, and their first and last are what it says."""
    assert len(barrier.iterations) == len(rows)
    z = [row[iteration] for row, iteration in zip(rows, barrier.iterations, strict=True)]
    assert (max(z), max(z) - min(z)) == (barrier.t_sync, barrier.d)


@pytest.mark.parametrize("part", range(4))
def test_small_instances_against_all_sets(part):
    seen = {"ties": 0, "n = 1": 0, "R = 1": 0, "identical": 0, "lengths": 0, "int64": 0, "float64": 0}
    for seed in range(part, CASES, 4):
        rows = small_rows(np.random.default_rng(seed))
        best = naive(rows)
        assert_is_barrier(rows, best)
        for found in exact_barriers(rows):
            assert found == best, (seed, rows)
        for heuristic in HEURISTIC:
            found = heuristic(rows)
            assert_is_barrier(rows, found)
            assert found.d >= best.d, (seed, rows)
        lengths = {len(row) for row in rows}
        seen["ties"] += len(np.unique(np.concatenate(list(rows)))) < sum(map(len, rows))
        seen["n = 1"] += len(rows) == 1
        seen["R = 1"] += lengths == {1}
        seen["identical"] += len(rows) > 1 and len({tuple(row) for row in rows}) == 1
        seen["lengths"] += len(lengths) > 1
        seen[str(rows[0].dtype)] += 1
    assert min(seen.values()) >= 5, seen


def far_apart(rng):
    """One worker that needs a thousand times as long as the others."""
    return [np.cumsum(rng.integers(1000, 1500, 50)) * (1000 if worker == 7 else 1) for worker in range(20)]


def one_after_the_other(rng):
    """Workers whose points do not overlap."""
    return [np.cumsum(rng.integers(1, 50, rng.integers(1, 60))) + 5000 * worker for worker in rng.permutation(12)]


LARGE = {
    "as the paper's": lambda rng: pc.zipline.generate(200, 60, int(rng.integers(1000))),
    "at the start": lambda rng: pc.zipline.generate(200, 60, int(rng.integers(1000)), history=0),
    "random": lambda rng: [np.cumsum(rng.integers(1, 100, rng.integers(50, 200))) for _ in range(60)],
    "seconds": lambda rng: [np.cumsum(rng.random(100) + 0.1) for _ in range(100)],
    "ties": lambda rng: [np.cumsum(rng.integers(1, 4, 100)) for _ in range(50)],
    "in step": lambda rng: np.arange(1, 101) * 1000 + np.zeros((50, 1), int),
    "a straggler": far_apart,
    "no overlap": one_after_the_other,
    "today in ms": lambda rng: pc.zipline.generate(50, 100, 5) + 1_795_600_000_000,
    "early in int64": lambda rng: pc.zipline.generate(50, 100, 6) - 2**62 + 1,
    "late in int64": lambda rng: pc.zipline.generate(50, 100, 6) + 2**62 - 1_000_000,
    "all of int64": lambda rng: [np.array([1 - 2**62 + worker, worker, 2**62 - 1 - worker]) for worker in range(9)],
    "all of float64": lambda rng: np.array([[-8e307, 1.0, 8e307], [-7e307, 3.0, 7e307], [0.0, 2.0, 5.0]]),
    "hardly apart": lambda rng: np.array([[0.0, 5e-324, 1e-323], [5e-324, 1.5e-323, 2e-323]]),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_instances_against_each_other(kind):
    rng = np.random.default_rng(1)
    for _ in range(3):
        rows = LARGE[kind](rng)
        first, *others = exact_barriers(rows)
        assert_is_barrier(rows, first)
        assert [*others] == [first] * len(others)
        for heuristic in HEURISTIC:
            assert heuristic(rows).d >= first.d


def test_the_size_of_the_paper():
    rows = pc.zipline.generate(1000, 150, seed=3)
    first, *others = exact_barriers(rows)
    assert [*others] == [first] * len(others)


def test_workers_in_step_do_not_wait():
    for barrier in exact_barriers(LARGE["in step"](None)):
        assert barrier == (1000, 0, (0,) * 50)


@pytest.mark.parametrize("algorithm", [*EXACT, naive, lambda rows: Incremental(rows).barrier])
def test_the_earliest_of_equal_windows_and_the_latest_point_in_it(algorithm):
    rows = [[0, 10, 20, 30], [3, 13, 23, 33], [100, 110], [97, 99, 107]]
    assert algorithm([np.array(row) for row in rows[:2]]) == (3, 3, (0, 0))
    assert algorithm([np.array(row) for row in rows[2:]]) == (100, 1, (0, 1))
    # 5 and 6 of the second worker are both in the window from 5 to 7.
    assert algorithm([np.array([5]), np.array([5, 6]), np.array([7])]) == (7, 2, (0, 1, 0))


def test_the_units_of_the_result_are_those_of_the_rows():
    whole = zipline_linear(np.array([[1, 4], [2, 6]]))
    assert [type(whole.t_sync), type(whole.d), type(whole.iterations[0])] == [int, int, int]
    split = zipline_linear(np.array([[1.0, 4.0], [2.0, 6.0]]))
    assert [type(split.t_sync), type(split.d)] == [float, float]
    assert whole == split == (2, 1, (0, 0))


@pytest.mark.parametrize("algorithm", [*EXACT, *HEURISTIC, naive])
def test_arrays_may_be_views_and_are_not_changed(algorithm):
    whole = np.array([[1, 9, 4, 9], [2, 9, 6, 9]])
    kept = whole.copy()
    assert algorithm(whole[:, ::2]) == algorithm([[1, 4], [2, 6]]) == (2, 1, (0, 0))
    assert algorithm(np.asfortranarray(whole[:, ::2])) == (2, 1, (0, 0))
    assert algorithm([whole[0, ::2], whole[1, ::2]]) == (2, 1, (0, 0))
    assert (whole == kept).all()


# --- Heuristics ---


def test_grid_scan_misses_in_most_of_the_data_of_the_paper():
    """Table 3 of the paper: it "consistently" fails."""
    missed = 0
    for seed in range(40):
        rows = pc.zipline.generate(100, 15, seed)
        missed += grid_scan(rows).d > zipline_linear(rows).d
    assert missed >= 20


def test_what_grid_scan_looks_at():
    """The first row starts first, so 0, 20 and 40 are designated, each with the closest of 7, 12 and 31."""
    rows = [np.array([0, 20, 40]), np.array([7, 12, 31]), np.array([13, 33])]
    assert grid_scan(rows) == (20, 8, (1, 1, 0))
    assert full_grid_scan(rows) == zipline_linear(rows) == (20, 8, (1, 1, 0))
    # 90 is closer to 100 than 111 is, but 109 and 111 are on the same side of it; 111 designated finds both.
    rows = [np.array([0, 100]), np.array([90, 111]), np.array([109])]
    assert grid_scan(rows) == (109, 19, (1, 0, 0))
    assert full_grid_scan(rows) == zipline_linear(rows) == (111, 11, (1, 1, 0))


def test_full_grid_scan_finds_the_optimum_in_the_data_of_the_paper():
    for seed in range(100):
        rows = pc.zipline.generate(10, 15, seed)
        assert full_grid_scan(rows)[:2] == zipline_linear(rows)[:2], seed


def test_full_grid_scan_may_miss():
    """The optimum is 0 to 10, but each of its points is closer to a point outside: the example of docs/zipline.md."""
    rows = [np.array([0, 15]), np.array([2]), np.array([-5, 10]), np.array([8])]
    assert naive(rows) == zipline_linear(rows) == (10, 10, (0, 0, 1, 0))
    assert full_grid_scan(rows) == (8, 13, (0, 0, 0, 0))


# --- Without MPI ---


def test_mpi_is_not_started():
    program = (
        "import sys, pycollectives as pc;"
        "rows = pc.zipline.generate(10, 15, 1);"
        "pc.zipline.zipline_linear(rows); pc.zipline.Incremental(rows);"
        "assert not [name for name in sys.modules if name.startswith(('mpi4py.MPI', 'pycollectives._core'))]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
