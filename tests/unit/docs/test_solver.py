"""What docs/howto/solver.md says of Jacobi's iteration with contributions that come late."""

import warnings

import numpy as np
import pytest

from pycollectives.testing import run_ranks


def poisson(side):
    """The matrix of a two-dimensional Poisson equation: 4 on the diagonal, -1 for each neighbor."""
    line = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    return np.kron(line, np.eye(side)) + np.kron(np.eye(side), line)


def residual_after(sweeps, *, keeps_own, side=8):
    """Of an iteration on 2 ranks in which each contribution arrives one round late."""
    matrix = poisson(side)
    right = np.ones(len(matrix))

    def program(comm):
        mine = np.array_split(np.arange(len(matrix)), comm.size)[comm.rank]
        x, sent, late = np.zeros(len(matrix)), np.zeros(len(mine)), np.zeros(len(matrix))
        corrections = comm.partial_allreduce(x, policy="full")
        for _ in range(sweeps):
            change = np.zeros(len(matrix))
            change[mine] = ((right - matrix @ x) / 4)[mine]
            corrections.contribute(change).wait(timeout=30.0)
            x += late
            late = corrections.result.copy()
            sent += change[mine]
            if keeps_own:
                x[mine] = sent
        x += late
        if keeps_own:
            x[mine] = sent
        return abs(right - matrix @ x)[mine].max()

    return max(run_ranks(2, program))


def test_it_diverges_and_a_rank_that_keeps_its_own_block_as_sent_mends_it():
    assert residual_after(200, keeps_own=False) > 1e10
    assert residual_after(800, keeps_own=True) < 1e-3


@pytest.mark.parametrize("delay", [0, 1, 2, 5])
def test_the_condition_is_that_of_the_recurrence(delay):
    """Roots of z^(d+1) = z^d - mu, just below the bound and just above it."""
    bound = 2 * np.sin(np.pi / (4 * delay + 2))
    for factor, converges in ((0.99, True), (1.01, False)):
        roots = np.roots([1, -1, *[0] * (delay - 1), bound * factor] if delay else [1, bound * factor - 1])
        assert (abs(roots).max() < 1) == converges


def test_the_first_result_that_is_not_finite_is_told_under_pyc_check():
    def program(comm):
        with comm.partial_allreduce(np.zeros(2), policy="full", name="sums") as ar:
            for value in (1.0, np.inf, np.nan, 1.0):
                ar.contribute(np.array([1.0, value])).wait(timeout=30.0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_ranks(2, program, check=True)
    texts = [str(one.message) for one in caught if "inf or NaN" in str(one.message)]
    assert len(texts) == 2, texts  # once on each rank
    assert all("sums: the result of round 1 contains inf or NaN" in text for text in texts)
