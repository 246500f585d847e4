"""The weights among the ranks that are left when others have died."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .conversion import from_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arguments import AnyTopology
    from .weights import Matrix


def among(topology: AnyTopology, weights: str | None, kept: Sequence[int]) -> list[Matrix]:
    """Return the weights of each step of a period among the ranks in `kept`, in that order.

    If these weights do not connect the ranks, each step's weights derive from the mean of all steps.

    >>> from .time_varying import alternating_exponential_ring
    >>> among(alternating_exponential_ring(4), None, [0, 3])[0].round(6)
    array([[0.875, 0.125],
           [0.125, 0.875]])
    """
    steps = [topology.at(step).matrix(weights) for step in range(topology.period)]
    parts = [without(step, kept) for step in steps]
    if from_matrix(np.mean(parts, axis=0)).is_connected:
        return parts
    whole: Matrix = np.mean(steps, axis=0)
    return [without(whole, kept)] * len(steps)


def without(matrix: Matrix, kept: Sequence[int]) -> Matrix:
    """Return the weights among the ranks in `kept`, as if the other ranks forwarded values at once.

    This is the stochastic complement (Meyer, "Stochastic complementation, uncoupling Markov chains, and the theory of
    nearly reducible systems", SIAM Review 1989, section 2): rows or columns that sum to 1 still do, symmetric weights
    stay symmetric, and a connected graph stays connected. Weight that never leads back to a kept rank is
    added to a rank's own weight.

    >>> ring = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4
    >>> without(ring, [0, 1, 2])
    array([[0.625, 0.25 , 0.125],
           [0.25 , 0.5  , 0.25 ],
           [0.125, 0.25 , 0.625]])
    """
    others = [rank for rank in range(len(matrix)) if rank not in kept]
    among, into = matrix[np.ix_(others, others)], matrix[np.ix_(others, kept)]
    passed = np.linalg.solve(np.eye(len(others)) * (1 + 1e-12) - among, into)
    result: Matrix = matrix[np.ix_(kept, kept)] + matrix[np.ix_(kept, others)] @ passed
    result[result < 1e-12] = 0  # rounding errors
    by_row = np.allclose(matrix.sum(axis=1), 1)
    result[np.diag_indices_from(result)] += 1 - result.sum(axis=1 if by_row else 0)
    return np.maximum(result, 0)
