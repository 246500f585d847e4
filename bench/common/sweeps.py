"""Benchmarks of policies over message sizes, with a table per policy, and a row and a record per size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi4py import MPI

from .cells import cell_record
from .device_arrays import DeviceArrays, arrays_on
from .device_subjects import NcclAllreduce, StagedAllreduce, why_no_nccl
from .mpi_subjects import MpiAllreduce
from .output import Column, Domain, Records, origin, policy_table, progress_bar
from .subjects import measure_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .cells import Cell
    from .cli import Sweep
    from .output import Record
    from .policies import PolicyName
    from .timing import Procedure

COLUMNS = [Column("Size"), Column("Avg Latency(us)"), Column("p50"), Column("p99"), Column("Active")]


@dataclass(frozen=True)
class Report:
    """The columns and keys that a benchmark shows of its cells."""

    bench: str
    title: str
    notes: list[str]
    columns: Mapping[str, Callable[[Cell], float | None]]  # to the right of the common columns
    keys: Callable[[Cell], Record]  # in addition to cell_record's keys


def measure_sweep(
    comm: MPI.Comm,
    sweep: Sweep,
    policies: list[PolicyName],
    procedure: Procedure,
    report: Report,
    baselines: tuple[type[MpiAllreduce], ...] = (MpiAllreduce,),
) -> None:
    """Measure all cells; collective. Rank 0 prints and writes. `baselines` are for arrays on the host."""
    arrays = arrays_on(sweep.device, comm)
    notes = [*report.notes, *arrays.place.notes()]
    if isinstance(arrays, DeviceArrays):
        without = why_no_nccl(comm, arrays, sweep.dtype)
        baselines = (StagedAllreduce,) if without else (StagedAllreduce, NcclAllreduce)
        notes += [f"NCCL is left out: {without}"] if without else []
    if not sweep.baseline:
        baselines = ()
    columns = [*COLUMNS, *map(Column, [*_baseline_columns(baselines), *report.columns])]
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
                notes=notes,
                origin=source,
                columns=columns,
            )
            print(table.head(), flush=True)
            for size in sweep.bytes:
                step(f"{policy} {size}")
                cell = measure_cell(comm, sweep, policy, size, procedure, baselines, arrays)
                if cell is None:
                    continue
                print(table.row([*_row(size, cell), *(value(cell) for value in report.columns.values())]), flush=True)
                if not cell.stationary and sweep.warmup is None:
                    print(f"# {size}: calls were still getting faster after {cell.warmup} of them", flush=True)
                shared = cell_record(report.bench, sweep, policy, size, comm.size, domain, cell, arrays.place)
                records.write({**shared, **report.keys(cell), **source})


def _row(size: int, cell: Cell) -> list[float | None]:
    return [
        size,
        cell.latency.mean,
        cell.latency.p50,
        cell.latency.p99,
        cell.active_mean,
        *((cell.baseline_latency.mean, cell.speedup) if cell.baseline_latency else ()),
        *(mpi.mean for name, mpi in cell.mpi.items() if name != cell.baseline),
    ]


def _baseline_columns(baselines: Sequence[type[MpiAllreduce]]) -> list[str]:
    if not baselines:
        return []
    first, *others = (f"{baseline.name}(us)" for baseline in baselines)
    return [first, "Speedup", *others]
