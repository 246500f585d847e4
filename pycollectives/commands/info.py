"""The command `python -m pycollectives info`: show the installation, and the choices of `algorithm="auto"`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..selection import tables
from ..support.environment import settings
from ..tuning import report
from . import readable

if TYPE_CHECKING:
    from rich.table import Table

    from ..selection.choice import SelectionTable

TRANSPORTS = ("mpi", "loopback", "simulated")


@click.command()
def info() -> None:
    """Show version, MPI, thread level, transports, progress, CUDA devices, algorithms and the selection table."""
    from rich.table import Table

    from .. import __version__
    from ..support.native import LIBRARY, MPI, THREAD_LEVELS, core

    started = MPI.Is_initialized() and not MPI.Is_finalized()
    if started and MPI.COMM_WORLD.rank != 0:
        return
    cuda = core.cuda_availability()
    with readable():
        environment = settings()
        table = tables.in_use()
    facts = Table(show_header=False, box=None)
    for fact, value in (
        ("pycollectives", __version__),
        ("MPI library", LIBRARY),
        ("MPI standard", ".".join(map(str, MPI.Get_version()))),
        ("thread level", THREAD_LEVELS[MPI.Query_thread()] if started else "MPI is not initialized"),
        ("ranks", str(MPI.COMM_WORLD.size) if started else "MPI is not initialized"),
        ("transports", ", ".join(TRANSPORTS)),
        ("progress", environment.progress),
        ("CUDA", described_cuda(cuda)),
        ("timeout", "none" if environment.timeout is None else f"{environment.timeout} s"),
        ("trace", str(environment.trace or "off")),
        ("selection table", f"{table.name}, digest {table.digest}"),
        ("measured on", str(table.machine or "see below")),
        ("algorithm auto", _rule(table)),
    ):
        facts.add_row(fact, value)

    known = Table("algorithm", "steps", "bytes sent per rank", "reference", title="Allreduce algorithms")
    for algorithm in core.algorithms():
        known.add_row(*(str(algorithm[key]) for key in ("name", "steps", "bytes", "reference")))

    console = report.console()
    devices = [device_table(cuda["devices"])] if cuda["devices"] else []
    for part in (facts, *devices, known, report.selection_table(table)):
        console.print(part)
    console.print(f"Measured by: {table.source}.")


def _rule(table: SelectionTable) -> str:
    if table is not tables.built_in():
        return "by this table"
    return "by a cost model on several nodes with a core per rank (see Communicator.costs), otherwise by this table"


def described_cuda(found: dict[str, Any]) -> str:
    """Return the version of the CUDA driver, or the reason why CUDA is off."""
    version = found["driver_version"]
    driver = f"ready: a driver for CUDA {version // 1000}.{version % 1000 // 10}"
    state = f"off: {found['reason']}" if found["reason"] else driver
    return state + (f"\nkernels {found['kernels']}" if found["kernels"] else "")


def device_table(devices: list[dict[str, Any]]) -> Table:
    """Return the devices as a table; the last column lists the devices whose memory each device can access."""
    from rich.table import Table

    headers = ("device", "name", "capability", "memory", "PCI bus", "CUDA IPC", "processes", "accesses")
    table = Table(*headers, title="CUDA devices")
    for number, device in enumerate(devices):
        table.add_row(
            str(number),
            device["name"],
            device["capability"],
            f"{device['bytes'] / 2**30:.0f} GiB",
            device["pci_bus_id"],
            f"no: {device['why_not_shared']}" if device["why_not_shared"] else "yes",
            "one, or MPS" if device["one_process_at_a_time"] else "any",
            " ".join(str(other) if can else "-" for other, can in enumerate(device["reaches"])),
        )
    return table
