"""The command `python -m pycollectives topology`: show a graph's neighbors, mixing speed and picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import click

from ..simulation.theory import gap_between_others
from ..topology import names
from ..topology.drawing import picture
from ..topology.graph import Topology
from ..topology.weights import KINDS
from . import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..topology.time_varying import TimeVarying

WIDEST_PICTURE = 64
"""Maximum number of ranks in a picture; more do not fit on a line."""


@click.command()
@click.argument("name")
@click.option("--ranks", "-n", default=8, show_default=True, type=click.IntRange(1, 1024))
@click.option(
    "--weights", default="uniform", show_default=True, type=click.Choice(KINDS[:-1]), help="Weights of the averages."
)
@click.option(
    "--dot",
    "drawing",
    type=click.File("w"),
    help="Write a drawing for Graphviz to this file. With -, print only the drawing.",
)
def topology(name: str, ranks: int, weights: str, drawing: TextIO | None) -> None:
    """Show a topology: neighbors, degree, diameter, spectral gap, rho of AD-PSGD, chi of A2CiD2, and a picture.

    NAME is one of ring, ring-based, double-ring, exponential, bipartite-exponential, hypercube, torus, star, complete,
    one-peer-exponential and alternating-exponential-ring. two-level:K has nodes of K ranks each, and two-level:4+2+2
    nodes of 4, 2 and 2 ranks. In the "gap of Hop", a rank's own value has no weight.
    """
    with readable():
        graph = names.by_name(name, ranks)
        text = "\n".join(_lines(graph, weights))
    if drawing is not None:
        drawing.write(graph.dot())
    if drawing is None or drawing.name != "<stdout>":
        click.echo(text)


def _lines(graph: Topology | TimeVarying, weights: str) -> Iterator[str]:
    whole = graph.union()
    steps = [graph.at(step) for step in range(graph.period)]
    yield repr(graph)[1:-1]
    facts = {
        "degree": _range([len(step.in_neighbors(rank)) for step in steps for rank in range(graph.size)]),
        "diameter": str(whole.diameter),
        "spectral gap": f"{graph.spectral_gap(weights):.4g}",
        "bipartite": "yes" if whole.is_bipartite else "no",
        "symmetric": "yes" if graph.is_symmetric else "no",
        f"{weights} weights": _sums(graph, weights),
    }
    if isinstance(graph, Topology) and graph.is_symmetric:
        if graph.size > 1:
            facts["gap of Hop"] = f"{gap_between_others(graph):.4f}"
        facts["rho"] = f"{graph.rho():.4g}"
        facts["chi1, chi2"] = ", ".join(f"{value:.4g}" for value in graph.chi())
    if graph.period > 1:
        facts["diameter"] += ", over all steps"
        facts["spectral gap"] += ", over a period"
    yield from (f"  {fact:<18} {value}" for fact, value in facts.items())
    for number, step in enumerate(steps):
        yield ""
        yield "Each rank receives from" if graph.period == 1 else f"In step {number}, each rank receives from"
        for rank in range(graph.size):
            yield f"  {rank:>4}: {' '.join(map(str, step.in_neighbors(rank)))}".rstrip()
    if graph.size <= WIDEST_PICTURE:
        yield f"\nOne row per rank{'' if graph.period == 1 else ', over all steps'}; o: receives from that rank\n"
        yield picture(whole)


def _range(values: list[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _sums(graph: Topology | TimeVarying, weights: str) -> str:
    """Describe which sums of the weights are 1: those of rows, of columns, or of both."""
    found = []
    for what, check in (("rows", graph.check_row_stochastic), ("columns", graph.check_column_stochastic)):
        try:
            check(weights)
        except ValueError:
            continue
        found.append(what)
    return f"{' and '.join(found)} sum to 1"
