"""Compare `Quorum(k, grace="auto")` with fixed graces in phases of different step times.

    mpirun -n 8 python -m pycollectives bench grace

A step takes 10 ms for --iterations calls, then 100 ms, then 10 ms, times a lognormal factor that each rank draws.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeAlias

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch
from common.errors import RunError
from common.output import Column, Domain, Records, Table, origin, version

STEPS_S = (0.010, 0.100, 0.010)
FIXED_MS = (0.0, 2.5, 5.0, 7.5, 10.0, 20.0, 50.0, 75.0, 100.0)
DEVIATIONS = (0.2, 0.5)
"""Of the logarithms of the factors."""

Grace: TypeAlias = "float | str"

COLUMNS = [
    Column("Deviation", 1),
    Column("Phase", least_width=8),
    Column("Grace", least_width=9),
    Column("Contributors", 2),
    Column("Wait(ms)", 2),
    Column("Fixed", 2),
]


@dataclass(frozen=True)
class Phase:
    """The mean contributors of the rounds that calls waited for, and the mean wait of a call in seconds."""

    contributors: float
    wait_s: float


@click.command(help=__doc__)
@common_options(iterations=100)
def grace(common: Common) -> None:
    comm = MPI.COMM_WORLD
    graces: list[Grace] = [*(ms / 1e3 for ms in FIXED_MS), "auto"]
    if common.list_only:
        print(f"# ranks {comm.size}")
        for deviation in DEVIATIONS:
            print(f"deviation {deviation}: {', '.join(map(_name, graces))}")
        return
    domain, source = Domain.of(comm, common.ranks_per_node), origin(MPI.Get_library_version())
    quorum = max(1, comm.size // 2)
    about = [
        f"ranks {comm.size}, {domain}",
        f"quorum {quorum}, calls {common.iterations} in each phase, seed {common.seed}",
        f"{source['mpi']}, commit {source['commit']}",
    ]
    table = Table(f"pycollectives Grace of a Quorum v{version()}", about, COLUMNS)
    if comm.rank == 0:
        print(table.head())
    with Records(common.json) as records, pc.Communicator(comm, ranks_per_node=common.ranks_per_node) as communicator:
        for deviation in DEVIATIONS:
            found = {each: _phases(comm, communicator, common, quorum, each, deviation) for each in graces}
            for number, step_s in enumerate(STEPS_S):
                phase = f"{number + 1}: {1e3 * step_s:g} ms"
                for each in graces:
                    one = found[each][number]
                    fixed = _at_equal_wait([found[ms / 1e3][number] for ms in FIXED_MS], one.wait_s)
                    wait_ms = 1e3 * one.wait_s
                    print(table.row([deviation, phase, _name(each), one.contributors, wait_ms, fixed]), flush=True)
                    cell = {"bench": "grace", "deviation": deviation, "phase": number, "step_ms": 1e3 * step_s}
                    cell |= {"grace": each if each == "auto" else 1e3 * float(each), "wait_ms": round(wait_ms, 3)}
                    cell |= {"contributors": round(one.contributors, 3), "fixed_contributors": round(fixed, 3)}
                    cell |= {"quorum": quorum, "path": domain.path, "ranks": comm.size}
                    records.write({**cell, "iterations": common.iterations, "seed": common.seed, **source})


def _name(grace: Grace) -> str:
    return "auto" if grace == "auto" else f"{1e3 * float(grace):g} ms"


def _at_equal_wait(fixed: list[Phase], wait_s: float) -> float:
    """Return the contributors of the best fixed grace that waits no longer than this; between two, interpolated."""
    ordered = sorted((each.wait_s, each.contributors) for each in fixed)
    best = np.maximum.accumulate([contributors for _, contributors in ordered])
    return float(np.interp(wait_s, [wait for wait, _ in ordered], best))


def _phases(
    comm: MPI.Comm, communicator: pc.Communicator, common: Common, quorum: int, grace: Grace, deviation: float
) -> list[Phase]:
    """Return the means over the calls of all ranks in each phase."""
    calls = common.iterations
    draw = np.random.default_rng((common.seed, comm.rank))
    work_s = draw.lognormal(-(deviation**2) / 2, deviation, len(STEPS_S) * calls) * np.repeat(STEPS_S, calls)
    one, total = np.ones(1), np.zeros(1)
    in_time: list[list[int]] = [[] for _ in STEPS_S]
    waits = np.zeros(len(work_s))
    with communicator.partial_allreduce(np.zeros(1), policy=pc.Quorum(quorum, grace=grace)) as ar:
        comm.Barrier()
        for call, seconds in enumerate(work_s):
            time.sleep(seconds)
            begin = time.perf_counter()
            request = ar.contribute(one)
            info = request.wait()
            waits[call] = time.perf_counter() - begin
            total += ar.result
            if not request.late:
                in_time[call // calls].append(len(info.contributors))
        ar.flush()
        total += ar.result
    if common.verify and total[0] != len(work_s) * comm.size:
        raise RunError(f"the results add up to {total[0]:g} contributions, expected {len(work_s) * comm.size}")
    parts = comm.allgather([(sum(each), len(each)) for each in in_time])
    sums = np.array(parts, dtype=float).sum(axis=0)
    mean_waits = np.zeros(len(STEPS_S))
    comm.Allreduce(waits.reshape(len(STEPS_S), calls).mean(axis=1), mean_waits)
    return [Phase(total / number, wait / comm.size) for (total, number), wait in zip(sums, mean_waits, strict=True)]


if __name__ == "__main__":
    launch(grace)
