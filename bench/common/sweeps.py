"""Benchmarks that measure policies over message sizes: a table for each policy, a row and a record for each size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi4py import MPI

from .cells import cell_record
from .mpi_subjects import MpiAllreduce
from .output import Column, Domain, Records, origin, policy_table, progress_bar
from .subjects import measure_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .cells import Cell
    from .cli import Sweep
    from .output import Record
    from .policies import PolicyName
    from .timing import Procedure

COLUMNS = [
    Column("Size"),
    Column("Avg Latency(us)"),
    Column("p50"),
    Column("p99"),
    Column("Active"),
    Column("MPI_Allreduce(us)"),
    Column("Speedup"),
]


@dataclass(frozen=True)
class Report:
    """What a benchmark shows of its cells."""

    bench: str
    title: str
    notes: list[str]
    columns: Mapping[str, Callable[[Cell], float | None]]  # to the right of COLUMNS
    keys: Callable[[Cell], Record]  # besides those of cell_record


def measure_sweep(
    comm: MPI.Comm,
    sweep: Sweep,
    policies: list[PolicyName],
    procedure: Procedure,
    report: Report,
    baselines: tuple[type[MpiAllreduce], ...] = (MpiAllreduce,),
) -> None:
    """Collective; rank 0 prints and writes."""
    domain = Domain.of(comm, sweep.ranks_per_node)
    source = origin(MPI.Get_library_version())
    with (
        Records(sweep.json if comm.rank == 0 else None) as records,
        progress_bar(len(policies) * len(sweep.bytes), shown=comm.rank == 0) as step,
    ):
        for policy in policies:
            table = policy_table(
                report.title,
                policy,
                sweep,
                ranks=comm.size,
                domain=domain,
                notes=report.notes,
                origin=source,
                columns=[*COLUMNS, *map(Column, report.columns)],
            )
            print(table.head(), flush=True)
            for size in sweep.bytes:
                step(f"{policy} {size}")
                cell = measure_cell(comm, sweep, policy, size, procedure, baselines)
                if cell is None:
                    continue
                print(table.row([*_row(size, cell), *(value(cell) for value in report.columns.values())]), flush=True)
                if not cell.stationary and sweep.warmup is None:
                    print(f"# {size}: calls were still getting faster after {cell.warmup} of them", flush=True)
                shared = cell_record(report.bench, sweep, policy, size, comm.size, domain, cell)
                records.write({**shared, **report.keys(cell), **source})


def _row(size: int, cell: Cell) -> list[float | None]:
    return [
        size,
        cell.latency.mean,
        cell.latency.p50,
        cell.latency.p99,
        cell.active_mean,
        cell.mpi["MPI_Allreduce"].mean,
        cell.speedup,
    ]
