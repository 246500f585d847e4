"""`python -m pycollectives advise`: forecast the speed of every method from recorded step times."""

from __future__ import annotations

import json
from pathlib import Path

import click

from . import readable


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one for each method.")
def advise(file: Path, as_json: bool) -> None:
    """Forecast the speed of every method from the step times in FILE, and recommend one.

    FILE has a line for each step and a column for each rank, in seconds of work without waiting;
    pycollectives.StepTimer writes such files. The forecast assumes that communication takes no time.

    The memory column shows the most memory that the library allocates on a rank, as a multiple of the model's size. It
    assumes a large model, and all ranks on one node.
    """
    import mpi4py

    mpi4py.rc.initialize = False  # nothing here communicates

    from ..simulation import workload
    from ..simulation.advice import advice, forecasts

    with readable():
        found = forecasts(workload.read(file))
    if as_json:
        for each in found:
            click.echo(json.dumps(each._asdict()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Forecast for {file.name}, without the cost of communication", box=None)
    table.add_column("method", no_wrap=True)
    for title in ("steps/s of all ranks", "speedup", "ranks averaged", "staleness", "memory"):
        table.add_column(title, justify="right")
    for each in found:
        staleness = "-" if each.staleness is None else f"{each.staleness:.2f}"
        shown = (f"{each.steps_per_s:.2f}", f"{each.speedup:.2f}x", f"{each.averaged:.1f}", staleness)
        table.add_row(each.method, *shown, f"{each.memory:.1f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(advice(found))
