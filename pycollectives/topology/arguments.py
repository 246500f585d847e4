"""The argument `topology` of collectives."""

from __future__ import annotations

from typing import Any, TypeAlias

from .graph import Topology
from .names import by_name
from .time_varying import TimeVarying

AnyTopology: TypeAlias = Topology | TimeVarying


def checked_topology(value: Any, size: int) -> AnyTopology:
    """Return a checked topology of `size` ranks, given as an object or a name; raise `ValueError` or `TypeError`."""
    if isinstance(value, str):
        return by_name(value, size)
    if not isinstance(value, (Topology, TimeVarying)):
        raise TypeError(f"topology: expected a graph such as topology.ring({size}), or its name, got {value!r}")
    if value.size != size:
        raise ValueError(f"topology: expected a graph with as many ranks as the communicator, {size}, got {value!r}")
    return value


def checked_static_topology(value: Any, size: int) -> Topology:
    """Do the same as `checked_topology`, but refuse a topology that varies in time."""
    graph = checked_topology(value, size)
    if not isinstance(graph, Topology):
        raise TypeError(f"topology: expected a graph that does not vary in time, got {graph!r}")
    return graph


def weights_or(topology: AnyTopology, weights: str | None, otherwise: str) -> str:
    """Return the kind of weights: `weights` if given, otherwise the graph's, or `otherwise` if the graph has none."""
    if weights is not None:
        return weights
    steps = [topology.at(step) for step in range(topology.period)]
    return "given" if all(step.default_weights == "given" for step in steps) else otherwise


def described(topology: AnyTopology) -> str:
    """Return the text that ranks compare and that messages show: name and signature.

    >>> from pycollectives import topology
    >>> described(topology.ring(4))
    'ring of 4 ranks, 4 edges, digest 133a90b483779639'
    """
    return f"{topology.name} of {topology.signature}"
