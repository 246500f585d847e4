"""Measure the latency of partial allreduces and MPI_Allreduce when ranks arrive apart (eager-SGD Figs. 8 and 9).

    mpirun -n 32 python -m pycollectives bench skew --skew linear --skew-us 1000
    mpirun -n 8 python -m pycollectives bench skew --device cuda --policy solo --skew one-late --skew-us 100000

Each iteration consists of a barrier, this rank's delay, and the timed call.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from common.cli import Sweep, launch, sweep_options
from common.output import print_plan
from common.sweeps import Report, measure_sweep
from common.timing import Procedure, SleepingBarrier, calls_of
from common.workload import INJECTORS, PATTERNS, Floats, delay_matrix

POLICIES = "solo,majority,quorum"


@click.command(help=__doc__)
@sweep_options(iterations=64, sizes="8,32768,262144,4194304", policies=POLICIES, late="drop")
@click.option("--skew", type=click.Choice(PATTERNS), default="linear", show_default=True)
@click.option("--skew-us", type=click.FloatRange(min=0), default=1000.0, show_default=True, help="Unit of the delays.")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="For --skew trace: CSV of delays in seconds, one line per iteration, one column per rank or one for all; "
    "lines repeat.",
)
@click.option(
    "--inject",
    type=click.Choice(sorted(INJECTORS)),
    default="sleep",
    show_default=True,
    help="How a rank is delayed; spin needs a core per rank.",
)
def skew(sweep: Sweep, skew: str, skew_us: float, trace: Path | None, inject: str) -> None:
    comm = MPI.COMM_WORLD
    policies = sweep.policies(comm.size, POLICIES)
    if sweep.list_only:
        print_plan(sweep, policies, comm.size)
        return
    delays = _delays(skew, skew_us, trace, comm.size, sweep)
    unit = float(delays.mean() * 1e6) if skew == "trace" else skew_us
    procedure = Procedure(
        SleepingBarrier(comm),
        delays,
        INJECTORS[inject],
        sweep.iterations,
        sweep.longest_warmup,
        until_stationary=sweep.warmup is None,
    )
    report = Report(
        "skew",
        "Skewed Latency",
        notes=[f"skew {skew}, {unit:g} us, by {inject}"],
        columns={
            "Early p99(us)": lambda cell: cell.early and cell.early.p99,
            "Early max(us)": lambda cell: cell.early and cell.early.max,
            "Ideal(us)": lambda cell: cell.ideal_us,
            "Of ideal": lambda cell: cell.ideal_fraction,
        },
        keys=lambda cell: {
            "skew": skew,
            "skew_us": unit,
            "inject": inject,
            "ideal_speedup": cell.ideal_speedup,
            "ideal_fraction": cell.ideal_fraction,
        },
    )
    measure_sweep(comm, sweep, policies, procedure, report)


def _delays(skew: str, skew_us: float, trace: Path | None, ranks: int, sweep: Sweep) -> Floats:
    if (skew == "trace") != (trace is not None):
        raise click.UsageError("--skew trace and --trace FILE belong together")
    calls = calls_of(sweep.iterations, sweep.longest_warmup)
    try:
        return delay_matrix(skew, ranks=ranks, calls=calls, skew_us=skew_us, seed=sweep.seed, trace=trace)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    launch(skew)
