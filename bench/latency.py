"""Balanced latency of partial allreduces, compared with MPI_Allreduce and MPI_Iallreduce.

    mpirun -n 8 python bench/latency.py --policy solo,full

Each iteration: MPI_Barrier and the timed call. README.md explains the columns.
"""

from __future__ import annotations

import click
import numpy as np
from mpi4py import MPI

from common.cells import Cell, cell_record
from common.cli import Sweep, launch, sweep_options
from common.output import Column, Domain, Records, origin, policy_table, print_plan, progress_bar
from common.subjects import MpiAllreduce, MpiIallreduce, measure_cell
from common.timing import Procedure, TightBarrier, calls_of
from common.workload import sleep

COLUMNS = [
    Column("Size"),
    Column("Avg Latency(us)"),
    Column("p50"),
    Column("p99"),
    Column("Active"),
    Column("MPI_Allreduce(us)"),
    Column("Speedup"),
    Column("MPI_Iallreduce(us)"),
]
POLICIES = "solo,majority,quorum,full"


@click.command(help=__doc__)
@sweep_options(
    iterations=100, warmup=10, sizes="8,4096,32768,262144,1048576,4194304", policies=POLICIES, late="accumulate"
)
def latency(sweep: Sweep) -> None:
    comm = MPI.COMM_WORLD
    policies = sweep.policies(comm.size, POLICIES)
    if sweep.list_only:
        print_plan(sweep, policies, comm.size)
        return
    no_delays = np.zeros((calls_of(sweep.iterations, sweep.warmup), comm.size))
    procedure = Procedure(TightBarrier(comm), no_delays, sleep, sweep.iterations, sweep.warmup)
    domain = Domain.of(comm, sweep.ranks_per_node)
    source = origin(MPI.Get_library_version())
    with (
        Records(sweep.json if comm.rank == 0 else None) as records,
        progress_bar(len(policies) * len(sweep.bytes), shown=comm.rank == 0) as step,
    ):
        for policy in policies:
            table = policy_table(
                "Latency",
                policy,
                sweep,
                ranks=comm.size,
                domain=domain,
                notes=[],
                origin=source,
                columns=COLUMNS,
            )
            print(table.head(), flush=True)
            for size in sweep.bytes:
                step(f"{policy} {size}")
                cell = measure_cell(comm, sweep, policy, size, procedure, (MpiAllreduce, MpiIallreduce))
                if cell is None:
                    continue
                print(table.row(_row(size, cell)), flush=True)
                records.write(
                    {
                        **cell_record("latency", sweep, policy, size, comm.size, domain, cell),
                        "skew": "none",
                        "skew_us": 0.0,
                        "iallreduce_us": cell.mpi["MPI_Iallreduce"].as_json(),
                        **source,
                    }
                )


def _row(size: int, cell: Cell) -> list[float | None]:
    return [
        size,
        cell.latency.mean,
        cell.latency.p50,
        cell.latency.p99,
        cell.active_mean,
        cell.mpi["MPI_Allreduce"].mean,
        cell.speedup,
        cell.mpi["MPI_Iallreduce"].mean,
    ]


if __name__ == "__main__":
    launch(latency)
