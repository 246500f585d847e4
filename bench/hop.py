"""Measure iterations per second of Hop's modes when workers are slow occasionally or always (Hop, Figs. 16 and 18).

    mpirun -n 16 python -m pycollectives bench hop --slowdown random:6 --mode backup:1,staleness:5
    mpirun -n 16 python -m pycollectives bench hop --slowdown 3:4 --mode backup:1,staleness:5,skip:10
    mpirun -n 2 python -m pycollectives bench hop --micro

For a fixed number of iterations, each worker computes (emulated by sleeping) and calls `step`. --micro measures one
update through an update queue.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import click
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch, parsed
from common.errors import require_none
from common.gossip import pattern, step_of
from common.hop import (
    Delays,
    HopCell,
    Outcome,
    Setting,
    audit_models,
    hop_record,
    ideal_of,
    parse_modes,
    said_by,
)
from common.hop_micro import measure_queues, micro_record
from common.output import Column, Domain, Records, Report, Table, made_with, origin, progress_bar, verified, version
from common.timing import SleepingBarrier
from common.workers import ITEM, compute_option, model_bytes_option
from pycollectives.hop import modes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from common.output import Source
    from pycollectives.simulation.hop import Computation

TWO_LEVEL = "two-level"
WARMUP = 4  # iterations without computing, which touch memory for the first time

COLUMNS = [
    Column("Mode", key="mode"),
    Column("Slowdown", key="slowdown"),
    Column("Iterations/s", 3, key="iterations_per_s"),
    Column("Ideal", 3, key="ideal_iterations_per_s"),
    Column("Of ideal", 3, key="of_ideal"),
    Column("Speedup", 3, key="speedup"),
    Column("Ideal speedup", 3, key="ideal_speedup"),
    Column("Max gap", key="max_gap"),
    Column("Skipped", key="skipped"),
    Column("Waiting", 4, key="waiting_fraction"),
]

MICRO_COLUMNS = [
    Column("Size", key="bytes"),
    Column("Avg Update(us)", key="latency_us.mean"),
    Column("p50", key="latency_us.p50"),
    Column("max", key="latency_us.max"),
    Column("MPI queue(us)", key="baseline_us.p50"),
    Column("Speedup", key="speedup"),
    Column("Owner asleep(us)", key="asleep_us"),
]


@click.command(help=__doc__)
@common_options(iterations=200)
@click.option(
    "--graph",
    type=click.Choice(["ring", "ring-based", "double-ring", TWO_LEVEL]),
    default="ring-based",
    show_default=True,
    help="Graph of the updates; python -m pycollectives topology NAME shows one. two-level connects all ranks of a "
    "node, and one rank of each node in a ring.",
)
@click.option(
    "--mode",
    "mode_names",
    callback=parsed(parse_modes),
    metavar="LIST",
    default="standard,notify-ack,backup:1,staleness:5,hybrid:1:5",
    show_default=True,
    help="Some of standard, notify-ack, backup:N, staleness:S and hybrid:N:S, each with or without +skip:J, and "
    "skip:J, which is backup:1+skip:J; separated by commas. The standard mode is always measured.",
)
@click.option(
    "--max-ig",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Maximum iteration gap of the token queues.",
)
@click.option(
    "--computation",
    type=click.Choice(["parallel", "serial"]),
    default="parallel",
    show_default=True,
    help="Send updates before computing, or afterwards with the gradients applied (Hop, section 3.2).",
)
@compute_option(50.0)
@model_bytes_option("1e6", "model")
@click.option(
    "--slowdown",
    "delays",
    callback=parsed(Delays.parse),
    metavar="RANK:FACTOR|random:FACTOR|none",
    default="random:6",
    show_default=True,
    help="Computing takes FACTOR times as long: on one rank, or in each iteration on each rank with probability 1/P.",
)
@click.option(
    "--micro", is_flag=True, help="With two ranks, measure an update through a queue, and by MPI_Isend and MPI_Irecv."
)
def hop(
    common: Common,
    graph: str,
    mode_names: list[str],
    max_ig: int,
    computation: Computation,
    compute_ms: float,
    model_bytes: int,
    delays: Delays,
    micro: bool,
) -> None:
    comm = MPI.COMM_WORLD
    if micro:
        _micro(comm, common, model_bytes, max_ig)
        return
    try:
        delays.slowdown.require(comm.size)
        topology = _graph(comm, graph, common.ranks_per_node)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if common.list_only:
        print(f"# ranks {comm.size}")
        for name in mode_names:
            print(f"{name} {graph}, {model_bytes} bytes, slowdown {delays}")
        return
    setting = Setting(
        ranks=comm.size,
        domain=Domain.of(comm, common.ranks_per_node),
        graph=graph,
        max_ig=max_ig,
        computation=computation,
        bytes=model_bytes,
        compute=compute_ms * 1e-3,
        iterations=common.iterations,
        seed=common.seed,
        verify=common.verify,
    )
    work = delays.work(ranks=comm.size, iterations=common.iterations, compute=setting.compute, seed=common.seed)
    source = origin(MPI.Get_library_version())
    standard: HopCell | None = None
    with (
        Records(common.json if comm.rank == 0 else None) as records,
        progress_bar(len(mode_names), shown=comm.rank == 0) as step,
    ):
        report = Report(_table(setting, source), records, source)
        for name in mode_names:
            step(name)
            outcomes = run(comm, name, setting, topology, common.ranks_per_node, work[comm.rank])
            if setting.verify:
                require_none(comm, name, outcomes and audit_models(outcomes))
            if outcomes is None:
                continue
            cell = HopCell.of(name, delays, outcomes, ideal_of(topology, name, setting, work), common.iterations)
            standard = standard or cell  # it is the first
            report.add(hop_record(setting, cell, standard))


def _micro(comm: MPI.Comm, common: Common, size: int, max_ig: int) -> None:
    if comm.size != 2:
        raise click.UsageError(f"--micro: expected 2 ranks, got {comm.size}")
    if common.list_only:
        print(f"# ranks {comm.size}\nmicro {size} bytes")
        return
    domain = Domain.of(comm, common.ranks_per_node)
    source = origin(MPI.Get_library_version())
    how = {"size": size, "max_ig": max_ig, "iterations": common.iterations}
    cell = measure_queues(comm, **how, ranks_per_node=common.ranks_per_node, verify=common.verify)
    if cell is None:
        return
    record = micro_record(cell, **how, path=domain.path, verified=common.verify)
    notes = [
        f"ranks 2, {domain}, dtype float32, {max_ig + 1} slots",
        f"iterations {common.iterations} in each block, {verified('updates', common.verify)}",
        made_with(source),
    ]
    table = Table(f"pycollectives Update Queue v{version()}", notes, MICRO_COLUMNS)
    with Records(common.json) as records:
        Report(table, records, source).add(record)


def _graph(comm: MPI.Comm, name: str, ranks_per_node: int | None) -> pc.topology.Topology:
    if name != TWO_LEVEL:
        return pc.topology.by_name(name, comm.size)
    with pc.Communicator(comm, ranks_per_node=ranks_per_node) as communicator:
        return pc.topology.two_level(communicator.nodes)


def run(
    comm: MPI.Comm,
    name: str,
    setting: Setting,
    topology: pc.topology.Topology,
    ranks_per_node: int | None,
    work: NDArray[np.float64],
) -> list[Outcome] | None:
    """Run one mode; collective. None on all ranks but 0. `work`: seconds that this rank sleeps in each iteration."""
    mode, skip = modes.parse(name)
    delta = (step_of(comm.rank) / 1024) * pattern(setting.bytes // ITEM)
    barrier = SleepingBarrier(comm)
    clock, sleep = time.perf_counter, time.sleep
    entered: list[tuple[float, int, int]] = []
    waited = 0.0
    with (
        pc.Communicator(comm, ranks_per_node=ranks_per_node) as communicator,
        communicator.hop(
            delta,
            topology=topology,
            max_ig=setting.max_ig,
            mode=mode,
            skip=skip,
            computation=setting.computation,
        ) as made,
    ):
        for _ in made.iterations(WARMUP):
            made.step(delta)
        skipped = made.statistics().skipped
        gc.collect()
        gc.disable()
        try:
            barrier.wait()
            start = before = clock()
            for k in made.iterations(setting.iterations):
                now = clock()
                waited += now - before
                entered.append((now - start, comm.rank, k - WARMUP))
                sleep(work[k - WARMUP])
                before = clock()
                made.step(delta)
            end = clock()
            waited += end - before
        finally:
            gc.enable()
        skipped = made.statistics().skipped - skipped
        barrier.wait()
        least, most = said_by(made.parameters)
    return comm.gather(Outcome(start, entered, end - start, skipped, waited, least, most))


def _table(setting: Setting, source: Source) -> Table:
    return Table(
        f"pycollectives Hop v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}, graph {setting.graph}, max_ig {setting.max_ig}, "
            f"computation {setting.computation}",
            f"model {setting.bytes} bytes, dtype float32, compute {setting.compute * 1e3:g} ms",
            f"iterations {setting.iterations}, seed {setting.seed}, {setting.verified('models')}",
            made_with(source),
        ],
        COLUMNS,
        first_width=20,
    )


if __name__ == "__main__":
    launch(hop)
