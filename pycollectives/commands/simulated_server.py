"""`python -m pycollectives simulate --sync ...`: run a parameter server under a load in virtual time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ..servers import sync
from ..simulation.parameter_server import ServerSummary
from ..simulation.parameter_server import simulate as run

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy import float64


def simulate_server(
    text: str, work: npt.NDArray[float64], *, message: float, setting: dict[str, object], as_json: bool
) -> None:
    """Simulate a parameter server, with seconds of computing of shape (workers, iterations), and print its figures.

    `message`: its seconds. `setting`: further items of the JSON object; "load" is also in the table's title.
    """
    kind = sync.parse(text)
    summary = run(kind, work, latency=message)
    throughput = summary.iterations_per_s / run(sync.BSP(), work, latency=message).iterations_per_s
    if as_json:
        click.echo(json.dumps({"sync": text, **setting, **summary._asdict(), "throughput": throughput}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{text}, {setting['load']} load", show_header=False)
    for label, value in _rows(summary, throughput):
        table.add_row(label, value)
    Console(highlight=False).print(table)


def _rows(summary: ServerSummary, throughput: float) -> list[tuple[str, str]]:
    """Return labels and values; `throughput` is relative to BSP."""
    return [
        ("workers", str(summary.workers)),
        ("iterations of a worker, mean", f"{summary.iterations_per_s:.2f} per s"),
        ("throughput over BSP", f"{throughput:.2f}x"),
        ("waiting", f"{100 * summary.waiting_fraction:.1f} %"),
        ("staleness, mean", f"{summary.staleness_mean:.2f} updates"),
        ("staleness, max", f"{summary.staleness_max} updates"),
        ("updates", str(summary.updates)),
        ("discarded", f"{100 * summary.discarded_fraction:.1f} %"),
        ("supersteps", str(summary.supersteps)),
        ("superstep, mean", f"{1e3 * summary.superstep_s_mean:.3f} ms"),
        ("slack of a superstep, mean", f"{1e3 * summary.slack_s_mean:.3f} ms"),
    ]
