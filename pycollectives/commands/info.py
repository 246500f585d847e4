"""The command `python -m pycollectives info`: what is installed, and what `algorithm="auto"` means here."""

from __future__ import annotations

from typing import Any

import click

from ..selection import tables
from ..support.environment import Settings, settings
from ..tuning import report

__all__ = ["described_cuda", "info"]

TRANSPORTS = ("mpi", "loopback", "simulated")


@click.command()
def info() -> None:
    """Show version, MPI, thread level, transports, progress, algorithms and the selection table."""
    from rich.table import Table

    from .. import __version__
    from ..support.native import LIBRARY, MPI, THREAD_LEVELS, core

    started = MPI.Is_initialized() and not MPI.Is_finalized()
    if started and MPI.COMM_WORLD.rank != 0:
        return
    environment = _settings()
    try:
        table = tables.in_use()
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    facts = Table(show_header=False, box=None)
    for fact, value in (
        ("pycollectives", __version__),
        ("MPI library", LIBRARY),
        ("MPI standard", ".".join(map(str, MPI.Get_version()))),
        ("thread level", THREAD_LEVELS[MPI.Query_thread()] if started else "MPI is not initialised"),
        ("ranks", str(MPI.COMM_WORLD.size) if started else "MPI is not initialised"),
        ("transports", ", ".join(TRANSPORTS)),
        ("progress", environment.progress),
        ("CUDA", described_cuda(core.cuda_availability())),
        ("timeout", "none" if environment.timeout is None else f"{environment.timeout} s"),
        ("trace", str(environment.trace or "off")),
        ("selection table", f"{table.name}, digest {table.digest}"),
        ("measured on", str(table.machine or "see below")),
    ):
        facts.add_row(fact, value)

    known = Table("algorithm", "steps", "bytes sent per rank", "reference", title="Allreduce algorithms")
    for algorithm in core.algorithms():
        known.add_row(*(str(algorithm[key]) for key in ("name", "steps", "bytes", "reference")))

    console = report.console()
    for part in (facts, known, report.selection_table(table)):
        console.print(part)
    console.print(f"Measured by: {table.source}.")


def described_cuda(found: dict[str, Any]) -> str:
    """Why CUDA is off, and the devices that there are."""
    devices = "".join(
        f"\n{number}: {device['name']}, compute capability {device['capability']}, {device['bytes'] / 2**30:.0f} GiB"
        for number, device in enumerate(found["devices"])
    )
    state = f"off: {found['reason']}" if found["reason"] else "ready, for partial_allreduce of arrays on it"
    return state + devices


def _settings() -> Settings:
    try:
        return settings()
    except ValueError as error:
        raise click.ClickException(str(error)) from error
