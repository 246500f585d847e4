"""Measure iterations per second of a parameter server's workers, per synchronization model (ElasticBSP, section 6.2).

    mpirun -n 8 python -m pycollectives bench server --servers node --sync asp,ssp:3,dssp:3:15,elastic:15
    mpirun -n 9 python -m pycollectives bench server --speeds none --slowdown 3:3 --json server.jsonl
    mpirun -n 5 python -m pycollectives bench server --micro

For a fixed number of iterations, each worker computes (emulated by sleeping), pushes a gradient and pulls new weights.
--micro measures push-pulls of a large model, and the same exchange in mpi4py.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch, parsed
from common.errors import require_none
from common.gossip import Slowdown, pattern, step_of
from common.hop import said_by
from common.output import Column, Domain, Records, Report, Table, made_with, origin, progress_bar, version
from common.server import (
    DISCARDED,
    Outcome,
    ServerCell,
    Servers,
    Setting,
    Speeds,
    audit,
    ideal_of,
    model_of,
    parse_syncs,
    server_record,
)
from common.server_micro import measure_push_pulls, micro_record
from common.timing import SleepingBarrier
from common.workers import ITEM, bytes_of_model, compute_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from common.output import Source, Step

MODEL_BYTES, MICRO_BYTES = "1e6", "16e6"
MICRO_SERVERS = ("1", "node")
WIDTH = 14

COLUMNS = [
    Column("Sync", key="sync"),
    Column("Servers", least_width=10, key="servers"),
    Column("Workers", least_width=10, key="workers"),
    Column("Iterations/s", 3, WIDTH, "iterations_per_s"),
    Column("Ideal", 3, WIDTH, "ideal_iterations_per_s"),
    Column("Of ideal", 3, WIDTH, "of_ideal"),
    Column("Speedup", 3, WIDTH, "speedup"),
    Column("Ideal speedup", 3, WIDTH, "ideal_speedup"),
    Column("Waiting", 4, WIDTH, "waiting_fraction"),
    Column("Staleness", 2, WIDTH, "staleness_mean"),
    Column("Superstep(ms)", 1, WIDTH, "superstep_ms"),
    Column("Slack(ms)", 1, WIDTH, "slack_ms"),
]

MICRO_COLUMNS = [
    Column("Size", key="bytes"),
    Column("Servers", key="servers"),
    Column("Workers", key="workers"),
    Column("Avg Push-pull(us)", key="latency_us.mean"),
    Column("p50", key="latency_us.p50"),
    Column("max", key="latency_us.max"),
    Column("mpi4py(us)", key="baseline_us.mean"),
    Column("Speedup", key="speedup"),
]


def _servers(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[Servers] | None:
    """Return the servers without duplicates, in the given order; None if none is given."""
    try:
        return [Servers.parse(value) for value in dict.fromkeys(values)] or None
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None


@click.command(help=__doc__)
@common_options(iterations=200)
@click.option(
    "--sync",
    "sync_names",
    callback=parsed(parse_syncs),
    metavar="LIST",
    default="bsp,asp,ssp:3,dssp:3:15,elastic:15",
    show_default=True,
    help="Synchronization models, separated by commas, as pycollectives.parameter_server.sync.parse reads them. BSP is "
    "always measured.",
)
@click.option(
    "--servers",
    "places",
    multiple=True,
    callback=_servers,
    metavar="N|node",
    help="Number of ranks that serve: the lowest ranks, which then do not compute. node: the weights are in the node's "
    "shared memory, and all ranks compute. Repeat the option to measure several. [default: 1; with --micro 1 and node]",
)
@compute_option(50.0)
@click.option(
    "--speeds",
    callback=parsed(Speeds.parse),
    metavar="uniform:LEAST:MOST|none",
    default="uniform:1.0:1.5",
    show_default=True,
    help="A constant factor of the computing time for each worker, drawn with the seed.",
)
@click.option(
    "--slowdown",
    callback=parsed(Slowdown.parse),
    metavar="RANK:FACTOR|none",
    default="none",
    show_default=True,
    help="A worker's computing takes another FACTOR times as long; several ranks separated by commas.",
)
@click.option("--model-bytes", metavar="BYTES", help=f"[default: {MODEL_BYTES}; {MICRO_BYTES} with --micro]")
@click.option("--micro", is_flag=True, help="Measure push-pulls of all ranks but 0, compared with mpi4py.")
def server(
    common: Common,
    sync_names: list[str],
    places: list[Servers] | None,
    compute_ms: float,
    speeds: Speeds,
    slowdown: Slowdown,
    model_bytes: str | None,
    micro: bool,
) -> None:
    comm = MPI.COMM_WORLD
    measured = places or [Servers.parse(text) for text in (MICRO_SERVERS if micro else ("1",))]
    names = ["micro"] if micro else sync_names
    try:
        setting = Setting(
            ranks=comm.size,
            domain=Domain.of(comm, common.ranks_per_node),
            bytes=bytes_of_model(model_bytes or (MICRO_BYTES if micro else MODEL_BYTES)),
            compute=compute_ms * 1e-3,
            speeds=speeds,
            slowdown=slowdown,
            iterations=common.iterations,
            seed=common.seed,
            verify=common.verify,
        )
        for servers in measured:
            setting.check(servers, micro=micro)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if common.list_only:
        print(f"# ranks {comm.size}, {setting.bytes} bytes")
        for servers in measured:
            for name in names:
                print(f"{name}, servers {servers}")
        return
    source = origin(MPI.Get_library_version())
    with (
        Records(common.json if comm.rank == 0 else None) as records,
        progress_bar(len(measured) * len(names), shown=comm.rank == 0) as step,
    ):
        if micro:
            _measure_micro(comm, setting, measured, source, records, step)
        else:
            _measure(comm, setting, measured, names, source, records, step)


def _measure(
    comm: MPI.Comm,
    setting: Setting,
    measured: list[Servers],
    names: list[str],
    source: Source,
    records: Records,
    step: Step,
) -> None:
    report = Report(_table(setting, source), records, source)
    for servers in measured:
        work = setting.seconds(servers)
        bsp: ServerCell | None = None
        for name in names:
            step(f"{name}, servers {servers}")
            outcomes = run(comm, name, setting, servers, work)
            if setting.verify:
                require_none(comm, name, outcomes and audit(name, outcomes))
            if outcomes is None:
                continue
            cell = ServerCell.of(name, outcomes, ideal_of(name, list(work.values()), setting.iterations))
            bsp = bsp or cell  # it is the first
            report.add(server_record(setting, servers, cell, bsp))


def run(comm: MPI.Comm, name: str, setting: Setting, servers: Servers, work: dict[int, float]) -> list[Outcome] | None:
    """Run one model; collective. None on all ranks but 0. `work`: seconds that each worker sleeps in an iteration."""
    gradient = pattern(setting.bytes // ITEM)
    gradient *= np.float32(step_of(comm.rank))
    weights = np.zeros_like(gradient)
    barrier = SleepingBarrier(comm)
    outcome = None
    with (
        pc.Communicator(comm, ranks_per_node=setting.domain.ranks_per_node) as communicator,
        communicator.parameter_server(
            weights, sync=model_of(name), update=pc.servers.SGD(rate=1.0), servers=servers.argument, workers=list(work)
        ) as made,
    ):
        gc.collect()
        barrier.wait()
        rows = _work(made, gradient, work[comm.rank], setting.iterations) if comm.rank in work else None
        barrier.wait()
        made.pull(weights)
        if rows is not None:
            outcome = Outcome.of(comm.rank, *rows, made.server_statistics(), *said_by(weights))
        barrier.wait()
    gathered = comm.gather(outcome)
    return None if gathered is None else [each for each in gathered if each is not None]


def _work(
    made: pc.ParameterServer, gradient: NDArray[np.float32], seconds: float, iterations: int
) -> tuple[float, list[tuple[float, float, int]]]:
    """Return the start time and, per iteration, the push-pull's begin and end since then and the staleness."""
    clock, sleep = time.perf_counter, time.sleep
    weights = np.zeros_like(gradient)
    rows = []
    gc.disable()
    try:
        start = clock()
        for _ in range(iterations):
            sleep(seconds)
            begin = clock()
            made.push_pull(gradient, weights)
            end = clock()
            push = made.last_push
            rows.append((begin - start, end - start, push.staleness if push is not None and push.used else DISCARDED))
    finally:
        gc.enable()
    made.suspend()
    return start, rows


def _measure_micro(
    comm: MPI.Comm,
    setting: Setting,
    measured: list[Servers],
    source: Source,
    records: Records,
    step: Step,
) -> None:
    report = Report(_micro_table(setting, source), records, source)
    for servers in measured:
        step(f"micro, servers {servers}")
        cell = measure_push_pulls(comm, setting, servers)
        if cell is not None:
            report.add(micro_record(setting, servers, cell))


def _table(setting: Setting, source: Source) -> Table:
    return Table(
        f"pycollectives Parameter Server v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}",
            f"model {setting.bytes} bytes, dtype float32, compute {setting.compute * 1e3:g} ms, "
            f"speeds {setting.speeds}, slowdown {setting.slowdown}",
            f"iterations {setting.iterations}, seed {setting.seed}, {setting.verified('weights')}",
            made_with(source),
        ],
        COLUMNS,
        first_width=16,
    )


def _micro_table(setting: Setting, source: Source) -> Table:
    return Table(
        f"pycollectives Push-pull v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}; rank 0 is not a worker",
            f"dtype float32, iterations {setting.iterations} in each block, {setting.verified('weights')}",
            made_with(source),
        ],
        MICRO_COLUMNS,
    )


if __name__ == "__main__":
    launch(server)
