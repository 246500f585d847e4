"""Communication graphs of any size for averages with neighbors, with their weights and mixing speed."""

from __future__ import annotations

from .conversion import from_matrix, from_networkx
from .families import (
    bipartite_exponential,
    complete,
    double_ring,
    exponential,
    hypercube,
    ring,
    ring_based,
    star,
    torus,
    two_level,
)
from .graph import Topology
from .names import NAMES, by_name
from .time_varying import TimeVarying, alternating_exponential_ring, one_peer_exponential
from .weights import KINDS

__all__ = [
    "KINDS",
    "NAMES",
    "TimeVarying",
    "Topology",
    "alternating_exponential_ring",
    "bipartite_exponential",
    "by_name",
    "complete",
    "double_ring",
    "exponential",
    "from_matrix",
    "from_networkx",
    "hypercube",
    "one_peer_exponential",
    "ring",
    "ring_based",
    "star",
    "torus",
    "two_level",
]
