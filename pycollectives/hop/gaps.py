"""Bounds of the iteration gap between ranks: Theorems 1 and 2 and Table 1 of Hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..support.validation import checked_integer
from ..topology.measures import distances
from .modes import parse

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..topology.graph import Topology
    from .modes import Mode


def gap_bounds(topology: Topology, mode: Mode | str, max_ig: int | None) -> npt.NDArray[np.float64]:
    """Return the upper bound of Iter(i) - Iter(j) at any time, for each pair of ranks: Hop, Table 1.

    If length(i -> j) is the least number of edges from i to j, the bound is

    - length(j -> i) in `Standard` mode, which is Theorem 1;
    - min(length(j -> i), 2 length(i -> j)) under `NotifyAck`;
    - (s + 1) length(j -> i) under `BoundedStaleness(s)`;
    - infinite under `BackupWorkers` and `Hybrid`.

    With token queues, the bound is also at most max_ig length(i -> j), which is Theorem 2. Skipped iterations do not
    change the bound.

    Parameters
    ----------
    topology
        The graph along which ranks send updates.
    mode
        One of this package's modes, or a string such as "backup:1"; a "+skip" in it has no effect.
    max_ig
        The lead that token queues allow, at least 1. None without token queues, which `Communicator.hop` always has.

    Returns
    -------
    numpy.ndarray
        float64 of shape (size, size): row i, column j; `inf` where there is no bound.

    Raises
    ------
    ValueError, TypeError
        `max_ig` or `mode` is invalid.

    >>> import pycollectives as pc
    >>> pc.hop.gap_bounds(pc.topology.ring(6), pc.hop.BackupWorkers(1), max_ig=5)[0]
    array([ 0.,  5., 10., 15., 10.,  5.])
    >>> pc.hop.gap_bounds(pc.topology.ring(6), pc.hop.Standard(), max_ig=5)[0]
    array([0., 1., 2., 3., 2., 1.])
    """
    if isinstance(mode, str):
        mode, _ = parse(mode)
    outgoing = [topology.out_neighbors(rank) for rank in range(topology.size)]
    length = np.array([distances(rank, outgoing) for rank in range(topology.size)], dtype=np.float64)
    length[length < 0] = np.inf
    with np.errstate(invalid="ignore"):  # inf * 0
        bounds = mode.bound_by_updates * length.T
        if mode.acknowledges:
            bounds = np.minimum(bounds, 2 * length)
        if max_ig is not None:
            bounds = np.minimum(bounds, checked_integer("max_ig", max_ig, at_least=1) * length)
    np.fill_diagonal(bounds, 0.0)
    return np.asarray(bounds)
