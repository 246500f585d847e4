"""Measure the cost of `python -m pycollectives top` to the program that it watches.

    mpirun -n 2 python -m pycollectives bench top --seconds 60

Ranks compute for 10 ms and average, again and again. In every other run, the command watches them from begin to end.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch
from common.errors import RunError
from common.output import Column, Domain, Records, Table, origin, progress_bar, version

COMPUTE_S = 0.010
LOOPS = 10_000
"""Of the measurement that finds how many loops take `COMPUTE_S`."""

COLUMNS = [
    Column("Ranks"),
    Column("Steps/s", 2),
    Column("with top", 2),
    Column("Cost(%)", 2),
]


@click.command(help=__doc__)
@common_options(iterations=3)
@click.option(
    "--seconds",
    type=click.FloatRange(min=3),
    default=60.0,
    show_default=True,
    help="Duration of a run, more than the start of the command takes.",
)
def top(common: Common, seconds: float) -> None:
    comm = MPI.COMM_WORLD
    if common.list_only:
        print(f"# ranks {comm.size}\ntop {seconds:g} s, and {seconds:g} s with top")
        return
    domain, source = Domain.of(comm, common.ranks_per_node), origin(MPI.Get_library_version())
    rates: dict[bool, list[float]] = {False: [], True: []}
    order = np.random.default_rng(common.seed)
    loops = round(LOOPS * COMPUTE_S / _compute(LOOPS))
    with progress_bar(common.iterations, shown=comm.rank == 0) as step:
        for number in range(common.iterations):
            step(f"iteration {number + 1}")
            for is_watched in order.permuted([False, True]).tolist():
                rates[is_watched].append(_rate(comm, common, seconds, loops, is_watched))
    if comm.rank != 0:
        return
    alone, watched = (float(np.mean(rates[is_watched])) for is_watched in (False, True))
    cost = 100 * (1 - watched / alone)
    about = [
        f"ranks {comm.size}, {domain}",
        f"seconds {seconds:g}, iterations {common.iterations}, seed {common.seed}",
        f"{source['mpi']}, commit {source['commit']}",
    ]
    table = Table(f"pycollectives Cost of top v{version()}", about, COLUMNS)
    print(table.head())
    print(table.row([comm.size, alone, watched, cost]), flush=True)
    with Records(common.json) as records:
        cell = {"bench": "top", "path": domain.path, "ranks": comm.size, "seconds": seconds}
        cell |= {
            "steps_per_s": round(alone, 3),
            "watched_steps_per_s": round(watched, 3),
            "cost_percent": round(cost, 3),
        }
        records.write({**cell, "iterations": common.iterations, "seed": common.seed, **source})


def _rate(comm: MPI.Comm, common: Common, seconds: float, loops: int, is_watched: bool) -> float:
    """Return the steps per second of a run."""
    pids = comm.allgather(os.getpid())
    mean = np.ones(1024, np.float32)
    with pc.Communicator(comm, ranks_per_node=common.ranks_per_node) as communicator:
        ar = communicator.partial_allreduce(mean, op=pc.AVG, policy=pc.Full())
        comm.Barrier()
        begin = time.perf_counter()
        watcher = _watch(pids) if is_watched and comm.rank == 0 else None
        steps, error = 0, None
        for _ in pc.until(seconds=seconds):
            _compute(loops)
            ar.contribute(mean).wait()
            steps += 1
        ar.flush()
        elapsed_s = time.perf_counter() - begin
        if watcher is not None:
            watcher.send_signal(signal.SIGINT)
            output, _ = watcher.communicate()
            if watcher.returncode or b"step" not in output:
                error = f"top ended with code {watcher.returncode}: {output.decode()[-300:]}"
    if error := comm.bcast(error):
        raise RunError(error)
    return float(comm.allreduce(steps) / comm.size / elapsed_s)


def _watch(pids: list[int]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pycollectives", "top", *map(str, pids)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _compute(loops: int) -> float:
    """Compute in the first-level cache; return the seconds."""
    data, begin = np.ones(2048, np.float32), time.perf_counter()
    for _ in range(loops):
        np.multiply(data, 1.0, out=data)
    return time.perf_counter() - begin


if __name__ == "__main__":
    launch(top)
