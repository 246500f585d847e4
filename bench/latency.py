"""Compare the balanced latency of partial allreduces with MPI_Allreduce and MPI_Iallreduce.

    mpirun -n 8 python -m pycollectives bench latency --policy solo,full

Each iteration consists of MPI_Barrier and the timed call. With --device cuda, arrays are on devices. They are compared
with MPI_Allreduce staged through the host, and with NCCL if each rank has a device.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import click
import numpy as np
from mpi4py import MPI

from common.cli import Sweep, launch, sweep_options
from common.mpi_subjects import MpiAllreduce, MpiIallreduce
from common.output import print_plan
from common.sweeps import Report, measure_sweep
from common.timing import Procedure, TightBarrier, calls_of
from common.workload import sleep

POLICIES = "solo,majority,quorum,full"


@click.command(help=__doc__)
@sweep_options(iterations=100, sizes="8,4096,32768,262144,1048576,4194304", policies=POLICIES, late="accumulate")
def latency(sweep: Sweep) -> None:
    comm = MPI.COMM_WORLD
    policies = sweep.policies(comm.size, POLICIES)
    if sweep.list_only:
        print_plan(sweep, policies, comm.size)
        return
    no_delays = np.zeros((calls_of(sweep.iterations, sweep.longest_warmup), comm.size))
    procedure = Procedure(
        TightBarrier(comm),
        no_delays,
        sleep,
        sweep.iterations,
        sweep.longest_warmup,
        until_stationary=sweep.warmup is None,
    )
    report = Report(
        "latency",
        "Latency",
        notes=[],
        columns={},
        keys=lambda cell: {"skew": "none", "skew_us": 0.0},
    )
    measure_sweep(comm, sweep, policies, procedure, report, (MpiAllreduce, MpiIallreduce))


if __name__ == "__main__":
    launch(latency)
