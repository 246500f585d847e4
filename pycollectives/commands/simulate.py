"""The command `python -m pycollectives simulate`: run a policy or a parameter server in virtual time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .. import policies
from ..selection import choice, model, tables
from ..servers import sync
from ..simulation import allreduce, parameter_server, workload
from ..support.costs import Costs
from . import readable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import numpy.typing as npt
    from numpy import float64

OF_ALLREDUCE = ("policy_text", "barrier", "algorithm", "activation", "late", "max_staleness", "reduce_ns")
"""Parameters that do not apply to a parameter server."""


@click.command(name="simulate")
@click.option(
    "--policy",
    "policy_text",
    default="solo",
    show_default=True,
    help="solo, majority, quorum, quorum:K[:GRACE_S|:auto], any-of:M, all-of:M or full.",
)
@click.option(
    "--sync",
    "sync_text",
    default=None,
    help="Simulate a parameter server instead of a partial allreduce: bsp, asp, ssp:S, dssp:LO:HI, "
    "elastic:LOOKAHEAD[:PREDICT], elastic-per-time:LOOKAHEAD, eamsgd:PERIOD:ALPHA, ringmaster:LIMIT, rennala:BATCH, "
    "ringleader, rescaled or mindflayer:TRIALS:SECONDS. It accepts --load, --trace, --ranks, --calls, --work-us, "
    "--skew-us, --seed, --json and the options for messages.",
)
@click.option(
    "--load",
    default="linear",
    show_default=True,
    type=click.Choice([*workload.LOADS, "trace"]),
    help="Work before each call; see pycollectives.simulation.workload.",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For --load trace: CSV file of seconds, with a line per call, and a column per rank or one for all ranks. "
    "After the last line, lines repeat from the first.",
)
@click.option("--ranks", "-n", default=8, show_default=True, type=click.IntRange(1, 65536))
@click.option(
    "--calls",
    default=64,
    show_default=True,
    type=click.IntRange(1),
    help="Calls of the fastest rank. Results cover the time until this rank has made them.",
)
@click.option("--work-us", default=0.0, show_default=True, type=click.FloatRange(0), help="Work common to all ranks.")
@click.option(
    "--skew-us",
    default=1000.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Scale of the differences between ranks.",
)
@click.option(
    "--barrier/--no-barrier",
    default=False,
    show_default=True,
    help="All ranks start each call's work together, as in bench/skew.py.",
)
@click.option("--bytes", "nbytes", default=8, show_default=True, type=click.IntRange(0))
@click.option("--algorithm", default="auto", show_default=True, help="auto: the fastest with these costs.")
@click.option(
    "--activation",
    default="auto",
    show_default=True,
    help="dissemination, tree or tree:K. auto: the fastest by the cost model.",
)
@click.option("--late", default="accumulate", show_default=True, type=click.Choice(["accumulate", "replace", "drop"]))
@click.option("--max-staleness", default=None, type=click.IntRange(0))
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0), help="Seed of loads, policies and deliveries."
)
@click.option("--latency-us", default=1.5, show_default=True, type=click.FloatRange(0), help="LogGP's latency L.")
@click.option("--overhead-us", default=0.5, show_default=True, type=click.FloatRange(0), help="LogGP's overhead o.")
@click.option("--gap-ns", default=0.1, show_default=True, type=click.FloatRange(0), help="LogGP's gap G, per byte.")
@click.option("--reduce-ns", default=0.1, show_default=True, type=click.FloatRange(0), help="Time to reduce a byte.")
@click.option("--ideal", is_flag=True, help="Assume that communication takes no time: the limit of the policy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    policy_text: str,
    sync_text: str | None,
    load: str,
    trace_file: Path | None,
    ranks: int,
    calls: int,
    work_us: float,
    skew_us: float,
    barrier: bool,
    nbytes: int,
    algorithm: str,
    activation: str,
    late: str,
    max_staleness: int | None,
    seed: int,
    latency_us: float,
    overhead_us: float,
    gap_ns: float,
    reduce_ns: float,
    ideal: bool,
    as_json: bool,
) -> None:
    """Simulate a policy under a load in virtual time, without MPI, on up to 65536 ranks."""
    import mpi4py

    mpi4py.rc.initialize = False  # nothing here communicates

    with readable(ValueError, RuntimeError):
        policy = policies.parse(policy_text, seed=seed)
        if trace_file is not None and load != "trace":
            raise ValueError(f"--trace {trace_file}: expected --load trace, got --load {load}")
        if load == "trace":
            if trace_file is None:
                raise ValueError("--load trace needs --trace FILE")
            _refuse(["work_us", "skew_us"], "--load trace: the file defines all work; expected no")
            work = workload.from_csv(trace_file, ranks=ranks, calls=calls)
        else:
            work = workload.make(load, ranks=ranks, calls=calls, work=work_us / 1e6, skew=skew_us / 1e6, seed=seed)
        if ideal:
            _refuse(["latency_us", "overhead_us", "gap_ns", "reduce_ns"], "--ideal: messages take no time; expected no")
        costs = Costs() if ideal else Costs(latency_us * 1e-6, overhead_us * 1e-6, gap_ns * 1e-9, reduce_ns * 1e-9)
        if sync_text is not None:
            _refuse(OF_ALLREDUCE, "--sync: a parameter server has no")
            message = costs.latency + 2 * costs.overhead + costs.gap_per_byte * nbytes
            setting = {"load": load, "bytes": nbytes, "seed": seed}
            _simulate_server(sync_text, work, message, setting, as_json=as_json)
            return
        chosen = choice.resolve(
            algorithm,
            model.algorithm_names(),
            model.CostModel(costs, tables.built_in(), lists_members=False),
            ranks=ranks,
            nodes=ranks,
            nbytes=nbytes,
            sparse=choice.is_sparse(policy, late, max_staleness),
        )
        algorithm, activation = chosen.name, chosen.activation if activation == "auto" else activation
        summary = allreduce.simulate(
            work,
            policy,
            nbytes=nbytes,
            algorithm=algorithm,
            activation=activation,
            costs=costs,
            late=late,
            max_staleness=max_staleness,
            barrier=barrier,
            delivery_seed=seed,
        )

    names = {"algorithm": algorithm, "activation": activation}
    setting = {"policy": policy_text, "load": load, "bytes": nbytes, **names, "seed": seed}
    title = f"{policy!r}, {load} load, {nbytes} B, {algorithm}, activation by {activation}"
    rows = [
        ("ranks", str(summary.ranks)),
        ("calls of the fastest rank", str(summary.calls)),
        ("rounds", str(summary.rounds)),
        ("latency, mean", f"{summary.latency_us_mean:.1f} us"),
        ("latency, p50", f"{summary.latency_us_p50:.1f} us"),
        ("latency, p99", f"{summary.latency_us_p99:.1f} us"),
        ("contributors of a round, mean", f"{summary.contributors_mean:.2f}"),
        ("active ranks of a round, mean", f"{summary.active_mean:.2f}"),
        ("staleness, mean", f"{summary.staleness_mean:.2f} rounds"),
        ("staleness, max", f"{summary.staleness_max} rounds"),
        ("missed per call, mean", f"{summary.missed_mean:.2f} rounds"),
        ("missed per call, max", f"{summary.missed_max} rounds"),
        ("late calls", f"{100 * summary.late_fraction:.1f} %"),
        ("throughput over synchronous", f"{summary.throughput:.2f}x"),
    ]
    _print({**setting, **dataclasses.asdict(summary)}, title, rows, as_json=as_json)


def _simulate_server(
    text: str, work: npt.NDArray[float64], message: float, setting: dict[str, Any], *, as_json: bool
) -> None:
    """Simulate a parameter server. `work`: seconds, of shape (workers, iterations). `message`: seconds per message."""
    kind = sync.parse(text)
    summary = parameter_server.simulate(kind, work, latency=message)
    bsp = parameter_server.simulate(sync.BSP(), work, latency=message)
    throughput = summary.iterations_per_s / bsp.iterations_per_s
    rows = [
        ("workers", str(summary.workers)),
        ("iterations of a worker, mean", f"{summary.iterations_per_s:.2f} per s"),
        ("throughput over BSP", f"{throughput:.2f}x"),
        ("waiting", f"{100 * summary.waiting_fraction:.1f} %"),
        ("staleness, mean", f"{summary.staleness_mean:.2f} updates"),
        ("staleness, max", f"{summary.staleness_max} updates"),
        ("updates", str(summary.updates)),
        ("discarded", f"{100 * summary.discarded_fraction:.1f} %"),
        ("supersteps", str(summary.supersteps)),
        ("superstep, mean", f"{1e3 * summary.superstep_s_mean:.3f} ms"),
        ("slack of a superstep, mean", f"{1e3 * summary.slack_s_mean:.3f} ms"),
    ]
    record = {"sync": text, **setting, **summary._asdict(), "throughput": throughput}
    _print(record, f"{text}, {setting['load']} load", rows, as_json=as_json)


def _print(record: dict[str, Any], title: str, rows: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(record))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _refuse(names: Collection[str], why: str) -> None:
    """Raise `ValueError` if one of these parameters was given on the command line."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise ValueError(f"{why} {option.opts[0]}")
