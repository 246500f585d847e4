"""Measure the cost of an idle library: CPU time of the progress thread, and the slowdown of a computing rank.

    mpirun -n 8 python -m pycollectives bench idle --seconds 2

Each iteration computes without an open communicator, then sleeps and computes with one.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, RunError, common_options, launch
from common.output import Column, Domain, Record, Records, Table, origin, progress_bar, version
from common.timing import SleepingBarrier, cpu_seconds, thread_ids

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = [
    Column("Ranks"),
    Column("CPU sleeping", 4),
    Column("most", 4),
    Column("CPU computing", 4),
    Column("Slowdown", 4),
]


@dataclass
class Costs:
    """One rank's measurements over all iterations."""

    sleeping: list[float] = field(default_factory=list)  # CPU seconds per wall second of the library's threads
    computing: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)  # loops per second without an open communicator
    together: list[float] = field(default_factory=list)  # loops per second with one


@click.command(help=__doc__)
@common_options(iterations=3)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Duration of each phase.",
)
def idle(common: Common, seconds: float) -> None:
    comm = MPI.COMM_WORLD
    if common.list_only:
        print(f"# ranks {comm.size}\nidle {seconds:g} s of sleeping, {seconds:g} s of computing")
        return
    foreign = thread_ids()
    domain = Domain.of(comm, common.ranks_per_node)
    source = origin(MPI.Get_library_version())
    costs = Costs()
    order = np.random.default_rng(common.seed).permuted([index % 2 for index in range(common.iterations)])
    with progress_bar(common.iterations, shown=comm.rank == 0) as step:
        for number, library_first in enumerate(order):
            step(f"iteration {number + 1}")
            if not library_first:
                _alone(comm, seconds, costs)
            _with_library(comm, common, seconds, costs, foreign)
            if library_first:
                _alone(comm, seconds, costs)
    everything = comm.gather(costs)
    if everything is None:
        return
    result = _summary(everything)
    table = Table(
        f"pycollectives Idle Cost v{version()}",
        [
            f"ranks {comm.size}, {domain}",
            f"seconds {seconds:g}, iterations {common.iterations}, seed {common.seed}",
            f"{source['mpi']}, commit {source['commit']}",
        ],
        COLUMNS,
    )
    print(table.head())
    print(table.row([comm.size, *result.values()]), flush=True)
    with Records(common.json) as records:
        records.write(
            {
                "bench": "idle",
                "path": domain.path,
                "ranks": comm.size,
                "ranks_per_node": domain.ranks_per_node,
                "seconds": seconds,
                "iterations": common.iterations,
                "seed": common.seed,
                **{name: round(value, 5) for name, value in result.items()},
                "verified": common.verify,
                **source,
            }
        )


def _summary(everything: list[Costs]) -> Record:
    sleeping = np.array([costs.sleeping for costs in everything]).mean(axis=1)
    alone = np.mean([costs.alone for costs in everything])
    together = np.mean([costs.together for costs in everything])
    return {
        "cpu_fraction": float(sleeping.mean()),
        "cpu_fraction_max": float(sleeping.max()),
        "cpu_fraction_computing": float(np.mean([costs.computing for costs in everything])),
        "slowdown": float(alone / together),
    }


def _alone(comm: MPI.Comm, seconds: float, costs: Costs) -> None:
    SleepingBarrier(comm).wait()
    costs.alone.append(_compute(seconds))


def _with_library(comm: MPI.Comm, common: Common, seconds: float, costs: Costs, foreign: set[int]) -> None:
    barrier = SleepingBarrier(comm)
    with pc.Communicator(comm, ranks_per_node=common.ranks_per_node) as communicator:
        collective = communicator.partial_allreduce(count=1, dtype=np.int64, policy=pc.Full())
        _exchange(comm, collective, common.verify)
        threads = thread_ids() - foreign
        barrier.wait()
        costs.sleeping.append(_cpu_fraction(threads, lambda: time.sleep(seconds)))
        barrier.wait()
        costs.computing.append(_cpu_fraction(threads, lambda: costs.together.append(_compute(seconds))))
        barrier.wait()
        _exchange(comm, collective, common.verify)


def _cpu_fraction(threads: set[int], work: Callable[[], None]) -> float:
    before, begin = cpu_seconds(threads), time.perf_counter()
    work()
    return (cpu_seconds(threads) - before) / (time.perf_counter() - begin)


def _compute(seconds: float) -> float:
    """Return loops per second of arithmetic that stays in the first-level cache."""
    data = np.ones(2048, np.float32)
    loops, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        for _ in range(100):
            np.multiply(data, 1.0, out=data)
        loops += 1
    return loops / spent


def _exchange(comm: MPI.Comm, collective: pc.PartialAllreduce, verify: bool) -> None:
    """Make a round, to show that the idle collective is ready and its thread responds."""
    collective.contribute(np.array([comm.rank + 1])).wait()
    right = int(collective.result[0]) == comm.size * (comm.size + 1) // 2
    if verify and not comm.allreduce(right, MPI.LAND):
        raise RunError("the collective returned a wrong sum")


if __name__ == "__main__":
    launch(idle)
