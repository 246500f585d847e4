"""Drawings of a graph, for Graphviz and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Topology


def dot(topology: Topology, title: str) -> str:
    """Return the drawing in Graphviz's language; see `Topology.dot`."""
    title = title.replace("\\", "\\\\").replace('"', '\\"')
    symmetric = topology.is_symmetric
    own = topology.default_weights == "given"
    lines = [
        f'{"graph" if symmetric and not own else "digraph"} "{title}" {{',
        f'  label="{title}"; layout=circo; node [shape=circle];',
        *(f"  {rank};" for rank in range(topology.size)),
    ]
    for source in range(topology.size):
        for target in topology.out_neighbors(source):
            if own:
                weight = topology.weights_of(target, "given")[1][source]
                lines.append(f'  {source} -> {target} [label="{weight:.3g}"];')
            elif not symmetric:
                lines.append(f"  {source} -> {target};")
            elif source < target:
                lines.append(f"  {source} -- {target};")
    return "\n".join([*lines, "}"]) + "\n"


def picture(topology: Topology) -> str:
    """Return a grid of characters: a row for each rank, with `o` in the column of each rank whose value it takes."""
    width = len(str(topology.size - 1))
    lines = [" ".join([" " * width, *(f"{rank:>{width}}" for rank in range(topology.size))])]
    for rank in range(topology.size):
        marks = dict.fromkeys(topology.in_neighbors(rank), "o") | {rank: "*"}
        lines.append(
            " ".join(f"{mark:>{width}}" for mark in (rank, *(marks.get(p, ".") for p in range(topology.size))))
        )
    return "\n".join(lines)
