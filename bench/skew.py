"""Latency of partial allreduces and MPI_Allreduce when ranks come at different times (eager-SGD Figs. 8 and 9).

    mpirun -n 32 python bench/skew.py --skew linear --skew-us 1000

Each iteration: a barrier, this rank's delay, and the timed call. README.md explains the columns.
"""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from common.cells import Cell, cell_record
from common.cli import Sweep, launch, sweep_options
from common.output import Column, Domain, Records, origin, policy_table, print_plan, progress_bar
from common.subjects import measure_cell
from common.timing import Procedure, SleepingBarrier, calls_of
from common.workload import INJECTORS, PATTERNS, Floats, delay_matrix

COLUMNS = [
    Column("Size"),
    Column("Avg Latency(us)"),
    Column("p50"),
    Column("p99"),
    Column("Active"),
    Column("MPI_Allreduce(us)"),
    Column("Speedup"),
    Column("Ideal(us)"),
    Column("Of ideal"),
]


@click.command(help=__doc__)
@sweep_options(iterations=64, warmup=2, sizes="8,32768,262144,4194304", policies="solo,majority,quorum", late="drop")
@click.option("--skew", type=click.Choice(PATTERNS), default="linear", show_default=True)
@click.option("--skew-us", type=click.FloatRange(min=0), default=1000.0, show_default=True, help="Unit of the delays.")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CSV of delays in seconds for --skew trace: a line per iteration, a column per rank or one; lines repeat.",
)
@click.option(
    "--inject",
    type=click.Choice(sorted(INJECTORS)),
    default="sleep",
    show_default=True,
    help="How a rank is held up; spin needs a core per rank.",
)
def skew(sweep: Sweep, skew: str, skew_us: float, trace: Path | None, inject: str) -> None:
    comm = MPI.COMM_WORLD
    policies = sweep.policies(comm.size, "solo,majority,quorum")
    if sweep.list_only:
        print_plan(sweep, policies, comm.size)
        return
    delays = _delays(skew, skew_us, trace, comm.size, sweep)
    unit = float(delays.mean() * 1e6) if skew == "trace" else skew_us
    procedure = Procedure(SleepingBarrier(comm), delays, INJECTORS[inject], sweep.iterations, sweep.warmup)
    domain = Domain.of(comm, sweep.ranks_per_node)
    source = origin(MPI.Get_library_version())
    with (
        Records(sweep.json if comm.rank == 0 else None) as records,
        progress_bar(len(policies) * len(sweep.bytes), shown=comm.rank == 0) as step,
    ):
        for policy in policies:
            table = policy_table(
                "Skewed Latency",
                policy,
                sweep,
                ranks=comm.size,
                domain=domain,
                notes=[f"skew {skew}, {unit:g} us, by {inject}"],
                origin=source,
                columns=COLUMNS,
            )
            print(table.head(), flush=True)
            for size in sweep.bytes:
                step(f"{policy} {size}")
                cell = measure_cell(comm, sweep, policy, size, procedure)
                if cell is None:
                    continue
                print(table.row(_row(size, cell)), flush=True)
                records.write(
                    {
                        **cell_record("skew", sweep, policy, size, comm.size, domain, cell),
                        "skew": skew,
                        "skew_us": unit,
                        "inject": inject,
                        "ideal_speedup": cell.ideal_speedup,
                        "ideal_fraction": cell.ideal_fraction,
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
        cell.ideal_us,
        cell.ideal_fraction,
    ]


def _delays(skew: str, skew_us: float, trace: Path | None, ranks: int, sweep: Sweep) -> Floats:
    if (skew == "trace") != (trace is not None):
        raise click.UsageError("--skew trace and --trace FILE belong together")
    calls = calls_of(sweep.iterations, sweep.warmup)
    try:
        return delay_matrix(skew, ranks=ranks, calls=calls, skew_us=skew_us, seed=sweep.seed, trace=trace)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    launch(skew)
