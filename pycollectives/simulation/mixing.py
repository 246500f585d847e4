"""Compute how averaging in groups mixes the workers' weights: matrices and spectral gap (Ripples, section 3.3).

The workers' weights are the columns of X. Averaging in the group G changes X to X F, where F has 1 / |G| between
members of G and is the identity elsewhere. F is symmetric, doubly stochastic and a projection, so that E[W^T W] of the
analysis is E[F]. The weights of all workers converge to each other if the spectral gap of E[F] is positive, which means
that its graph is connected.

As in the paper, matrices are averaged over P-Reduces, not over steps. A synchronization without other workers is a
group of one. Its matrix, the identity, counts in the average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ..groups import GeneratedGroups, RandomGroups, StaticGroups
from ..topology import measures
from .groups import simulate_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Matrix = npt.NDArray[np.float64]

Generator: TypeAlias = GeneratedGroups | StaticGroups


def group_matrix(group: Sequence[int], size: int) -> Matrix:
    """Return the averaging matrix F of a group among `size` workers.

    >>> group_matrix([0, 2], 3)
    array([[0.5, 0. , 0.5],
           [0. , 1. , 0. ],
           [0.5, 0. , 0.5]])
    """
    members = sorted(set(group))
    if len(members) != len(group) or not members or members[0] < 0 or members[-1] >= size:
        raise ValueError(f"group: expected different workers from 0 to {size - 1}, got {list(group)}")
    matrix = np.eye(size)
    matrix[np.ix_(members, members)] = 1 / len(members)
    return matrix


def mean_matrix(groups: Iterable[Sequence[int]], size: int) -> Matrix:
    """Return the mean of the matrices of some groups, an estimate of E[W^T W] from a history.

    >>> float(spectral_gap(mean_matrix([(0, 1), (1, 2)], 3)))
    0.25
    """
    sums = np.zeros((size, size))
    count = 0
    for group in groups:
        count += 1
        members = np.asarray(group)
        sums[np.ix_(members, members)] += 1 / len(members)
        sums[members, members] -= 1
    if count == 0:
        raise ValueError("groups: expected at least one")
    return np.eye(size) + sums / count


def random_groups_matrix(group_size: int, size: int) -> Matrix:
    """Return the mean over all groups of `group_size` of `size` workers; the gap is (group_size - 1) / (size - 1).

    A pair of workers is in a share g (g - 1) / (P (P - 1)) of the groups, and averages there with weight 1 / g.

    >>> round(spectral_gap(random_groups_matrix(3, 16)) * 15, 9)
    2.0
    """
    group_size = min(group_size, size)
    if size == 1:
        return np.ones((1, 1))
    between = (group_size - 1) / (size * (size - 1))
    return np.full((size, size), between) + np.eye(size) * (1 - size * between)


def expected_matrix(generator: Generator, size: int, ranks_per_node: int = 4) -> Matrix:
    """Return E[W^T W] of a generator, the expected averaging matrix.

    The result is the closed form for random groups and for the cycle of static groups, and otherwise the mean over a
    simulated history of equally fast workers.
    """
    if isinstance(generator, RandomGroups):
        return random_groups_matrix(generator.size, size)
    if isinstance(generator, StaticGroups):
        groups = (group for step in range(generator.cycle(size)) for group in generator.groups(step, size))
        return mean_matrix(groups, size)
    jitter = 0.02  # of an iteration; without any, all would arrive at once
    history = simulate_groups(generator, size, ranks_per_node, seconds=200.0, jitter=jitter, seed=generator.seed)
    return mean_matrix(history.groups, size)


def spectral_gap(what: Generator | Matrix, *, size: int | None = None, ranks_per_node: int = 4) -> float:
    """Return the spectral gap 1 - max(|lambda_2|, |lambda_n|) of E[W^T W], in [0, 1]; 1 for a single worker.

    `what`: a symmetric matrix, or a group generator for `size` workers.

    >>> spectral_gap(group_matrix([0, 1], 2))
    1.0
    """
    if isinstance(what, np.ndarray):
        matrix = what
    elif size is None:
        raise ValueError("spectral_gap: expected size=, the number of workers, with a generator")
    else:
        matrix = expected_matrix(what, size, ranks_per_node)
    return measures.gap(matrix)
