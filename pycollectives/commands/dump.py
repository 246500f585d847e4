"""The command `python -m pycollectives dump`: show the state of running programs, from their flight records."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from ..agreement.consistency import list_ranks
from ..diagnostics import flight

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("pids", nargs=-1, metavar="[PID]...", type=click.IntRange(1))
@click.option("--all", "every", is_flag=True, help="Ask all of your processes on this machine, of any job.")
@click.option("--json", "as_json", is_flag=True, help="Print all records as one JSON object.")
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds to wait for answers.",
)
def dump(pids: tuple[int, ...], every: bool, as_json: bool, timeout: float) -> None:
    """Show the newest rounds of a running program's processes on this machine.

    Without PIDs, show the processes of this SLURM job, or of your only job on this machine. Each process receives
    SIGUSR2 and writes its record to its PYC_DUMP_DIR, or to its working folder.
    """
    documents, silent = flight.request(pids or chosen(every), timeout)
    if as_json:
        click.echo(json.dumps({"format": 1, "processes": list(documents.values()), "silent": silent}))
    elif documents:
        _print_records(documents)
    if silent:
        raise click.ClickException("; ".join(silent))


def chosen(every: bool) -> list[int]:
    """Return the processes of one job, or of all jobs if `every` is set."""
    found = flight.listening()
    jobs = flight.jobs(found)
    if not found:
        raise click.ClickException("none of your processes on this machine has a pycollectives communicator")
    own = jobs.get(f"SLURM job {os.environ.get('SLURM_JOB_ID')}")
    if every or len(jobs) <= 1:
        return found
    if own is not None:
        return own
    listed = "; ".join(f"{job}: {' '.join(map(str, pids))}" for job, pids in jobs.items())
    raise click.ClickException(f"you have several jobs here: pass the PIDs of one job, or --all ({listed})")


def _print_records(documents: dict[Path, flight.Document]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = flight.rows(documents.values())
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    for group in dict.fromkeys(row.group for row in found):
        columns = ("rank", "pid", "collective", "newest round", "state", "waiting for", "not arrived")
        table = Table(*columns, title=f"Communicator {group}")
        for row in found:
            if row.group == group:
                missing = list_ranks(row.not_arrived)
                if row.unknown:
                    missing += f"{'; ' if missing else ''}no record of {list_ranks(row.unknown)}"
                newest = "" if row.round is None else row.round
                cells = (row.rank, row.pid, row.collective, newest, row.state, row.waiting, missing)
                table.add_row(*(Text(str(cell)) for cell in cells))
        console.print(table)
    if not found:
        console.print("All communicators are closed.")
    for path in documents:
        console.print(f"{path}", soft_wrap=True)
