"""The command `python -m pycollectives top`: a live table of the ranks of running programs."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..diagnostics import flight
from ..diagnostics.pace import paces
from .dump import chosen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..diagnostics.pace import Pace

TIMEOUT_S = 5.0


@click.command()
@click.argument("pids", nargs=-1, metavar="[PID]...", type=click.IntRange(1))
@click.option("--all", "every", is_flag=True, help="Ask all of your processes on this machine, of any job.")
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between two updates."
)
@click.option("--once", is_flag=True, help="Print the table once.")
def top(pids: tuple[int, ...], every: bool, interval: float, once: bool) -> None:
    """Show the speed of a running program's ranks on this machine, until it ends or you press Ctrl-C.

    Columns: "step" is the time from one result to the next, and "call to result" the share of it between a call and the
    result. "absent" is the share of rounds without the rank's data, "behind" the number of rounds that another rank has
    received and this rank has not. "newest call" is the time since the rank's newest call, and "waits for" the reason
    for its current wait. Processes that do not answer, such as stopped ones, are listed below the table.

    Without PIDs, show the processes of this SLURM job, or of your only job on this machine. Each process receives
    SIGUSR2 and writes its flight record, as for `dump`.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    asked = list(pids) or chosen(every)
    before: set[Path] = flight.files_of(asked)
    try:
        found, silent = _look(asked, before)
        if once or not found:
            console.print(_table(found, [] if once else silent))
            if silent:
                raise click.ClickException("; ".join(silent))
            return
        with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
            while any(Path("/proc", str(pid)).exists() for pid in asked):
                live.update(_table(found, silent), refresh=True)
                time.sleep(interval)
                newest, silent = _look(asked, before)
                found = newest or found
    finally:
        for path in flight.files_of(asked) - before:
            path.unlink(missing_ok=True)


def _look(pids: list[int], kept: set[Path]) -> tuple[list[Pace], list[str]]:
    """Return the current paces, and a line for each process without a record. Delete records not in `kept`."""
    documents, silent = flight.request(pids, TIMEOUT_S)
    for path in documents.keys() - kept:
        path.unlink(missing_ok=True)
    return paces(documents.values()), silent


def _table(found: list[Pace], silent: list[str]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    if not found:
        return "\n".join(["No communicator with collectives is open.", *silent])
    columns = ("rank", "pid", "collective", "step", "call to result", "absent", "behind", "newest call", "waits for")
    tables = []
    for group in dict.fromkeys(pace.group for pace in found):
        table = Table(*columns, title=f"Communicator {group}")
        for pace in found:
            if pace.group == group:
                table.add_row(*_cells(pace))
        tables.append(table)
    return Group(*tables, *silent)


def _cells(pace: Pace) -> tuple[str, ...]:
    step = "" if pace.step_s is None else f"{1e3 * pace.step_s:.1f} ms"
    shares = ["" if share is None else f"{share:.0%}" for share in (pace.waiting, pace.absent)]
    ago = f"{pace.since_s:.1f} s ago"
    return str(pace.rank), str(pace.pid), pace.collective, step, *shares, str(pace.behind), ago, pace.waits_for
