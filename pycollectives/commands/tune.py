"""The command `python -m pycollectives tune`: measure this machine for `algorithm="auto"`."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..selection import tables
from ..support.environment import selection_files
from ..tuning import report

if TYPE_CHECKING:
    from mpi4py import MPI


def _sizes(context: click.Context, option: click.Parameter, text: str) -> list[int]:
    sizes = [size.strip() for size in text.split(",")]
    if not all(size.isdecimal() and int(size) > 0 and int(size) % 4 == 0 for size in sizes):
        raise click.BadParameter(f"expected multiples of 4, separated by commas; got {text!r}")
    return sorted(set(map(int, sizes)))


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File for the table.  [default: ~/.config/pycollectives/selection.json, which the library reads]",
)
@click.option(
    "--bytes",
    "sizes",
    metavar="LIST",
    callback=_sizes,
    default="8,1024,8192,65536,262144,1048576,4194304",
    show_default=True,
    help="Sizes of one rank's data. Each size represents sizes up to 4 times smaller and larger.",
)
@click.option(
    "--seconds",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="No measurement starts after this time. Choices can differ from the built-in ones after at least 3 passes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the contents of the file instead of tables.")
def tune(output: Path | None, sizes: list[int], seconds: float, as_json: bool) -> None:
    """Measure this machine for algorithm="auto": `mpirun -n P python -m pycollectives tune`.

    Time boards (shared memory) and schedules (messages) on 2, 4, 8, ... P ranks, and write the table that the library
    then uses. Run it like your programs, with the same launcher and number of ranks per machine, and with nothing else
    running.
    """
    from ..support.native import MPI

    if not MPI.Is_initialized():
        raise click.ClickException("tuning needs MPI: unset MPI4PY_RC_INITIALIZE")
    world = MPI.COMM_WORLD
    try:
        problem = world.bcast(_cannot_tune(world, output) if world.rank == 0 else None)
        if problem is None:
            problem = world.bcast(_tune(world, output or _users_table(), sizes, seconds, as_json))
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)
    if problem is not None:
        if world.rank == 0:
            raise click.ClickException(problem)
        sys.exit(1)


def _users_table() -> Path:
    path = selection_files()[1]
    if path is None:
        raise ValueError("there is no home folder for the table: give --output FILE")
    return path


def _cannot_tune(world: MPI.Comm, output: Path | None) -> str | None:
    """Return, on rank 0, the reason why the machine cannot be measured, or None."""
    if world.size < 2:
        return (
            "expected at least 2 ranks, got 1: run `mpirun -n P python -m pycollectives tune`, with as many ranks as "
            "your programs have, and the mpirun of the MPI library that mpi4py uses"
        )
    try:
        path = output or _users_table()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        return f"--output: the table could not be written: {error}"
    return None


def _tune(world: MPI.Comm, path: Path, sizes: list[int], seconds: float, as_json: bool) -> str | None:
    """Measure, write and print; collective. Return, on rank 0, the reason if no table was written, or None."""
    from ..support.native import core
    from ..tuning.derivation import PASSES_NEEDED
    from ..tuning.measuring import Tuning

    tuning = Tuning(world, sizes, seconds, [str(entry["name"]) for entry in core.algorithms()])
    if world.rank != 0:
        tuning.run()
        return None
    with report.progress(seconds) as tuning.on_progress:
        measured = tuning.run()
    if all(cell.passes < PASSES_NEEDED for cell in measured.cells):  # such a table would replace the cost model
        return (
            f"no table was written: the time was up before anything was measured {PASSES_NEEDED} times; give more than "
            f"--seconds {seconds:g}"
        )
    table, document = tuning.document(measured)
    tables.write(path, document)
    if as_json:
        click.echo(json.dumps(document))
        return None
    console = report.console()
    console.print(report.measured_table(measured, tables.built_in()))
    console.print(report.selection_table(table))
    console.print(f"{measured.passes} complete passes in {measured.elapsed:.0f} s; written to {path}", soft_wrap=True)
    for note in tuning.notes(measured):
        console.print(f"Note: {note}", soft_wrap=True)
    return None
