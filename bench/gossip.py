"""Compare averaging with neighbors with MPI_Allreduce when some workers are slow (AD-PSGD, section 5.4).

    mpirun -n 16 python -m pycollectives bench gossip --methods all --slowdown none --slowdown 0:10 --slowdown 0:100
    mpirun -n 8 python -m pycollectives bench gossip --micro
    mpirun -n 8 python -m pycollectives bench gossip --bias --slowdown 0:10

Until a common deadline, each worker repeatedly computes (emulated by sleeping) and applies a delta to its model.
--micro measures one exchange of two models. --bias measures where the models of a quadratic end when ranks differ in
speed. `python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from mpi4py import MPI

from common.cli import Common, common_options, launch, parsed
from common.gossip import (
    METHODS,
    GossipCell,
    Setting,
    Slowdown,
    check_micro,
    check_topology,
    exchange_record,
    gossip_record,
    parse_methods,
    parse_model_bytes,
)
from common.gossip_bias import LEARNING_RATE, OTHERS, SLOW, WEIGHTINGS, BiasCell, bias_record, measure_bias
from common.gossip_methods import MAKERS, run_method, verify
from common.gossip_micro import NEIGHBORS, measure_exchanges
from common.output import Column, Domain, Records, Report, Table, made_with, origin, progress_bar, version
from common.timing import Window
from common.workers import compute_option, warmup_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.output import Source, Step

MODEL_BYTES = "1e6"  # the paper's ResNet-20
MICRO_BYTES = "1e6,9.2e6"  # and Ripples' VGG-16
BIAS_BYTES = "4e3"
BIAS_COMPUTE_MS = 5.0  # 20 s; the first half is ten times the time in which the models reach their limit
BIAS_ITERATIONS = 2000

COLUMNS = [
    Column("Method", key="method"),
    Column("Slowdown", key="slowdown"),
    Column("Iterations/s", 3, key="iterations_per_s"),
    Column("Others", 3, key="others_iterations_per_s"),
    Column("Others kept", 3, key="others_kept"),
    Column("Speedup", 3, key="speedup"),
    Column("Waiting", 4, key="waiting_fraction"),
    Column("Avg Apply(us)", key="latency_us.mean"),
    Column("p50", key="latency_us.p50"),
    Column("p99", key="latency_us.p99"),
    Column("Exchanges/s", 1, key="exchanges_per_s"),
    Column("Between nodes/s", 1, key="exchanges_between_nodes_per_s"),
    Column("Staleness", 2, key="staleness_mean"),
]
MICRO_COLUMNS = [
    Column("Size", key="bytes"),
    Column("Neighbor", key="neighbor"),
    Column("Avg Exchange(us)", key="latency_us.mean"),
    Column("p50", key="latency_us.p50"),
    Column("max", key="latency_us.max"),
    Column("MPI_Sendrecv(us)", key="baseline_us.mean"),
    Column("Speedup", key="speedup"),
    Column("Skipped", 4, key="skipped"),
]


BIAS_COLUMNS = [
    Column("Slowdown"),
    Column("Weighting"),
    Column("Model", 2),
    Column("Optimum", 2),
    Column("Off(%)", 2),
    Column("Slowest/s", 1),
    Column("Fastest/s", 1),
]


@contextlib.contextmanager
def _wrong_use_of(option: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _slowdowns(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[Slowdown]:
    """Return the slowdowns without duplicates, in the given order; by default, no rank is slow."""
    try:
        found = [Slowdown.parse(value) for value in values or ("none",)]
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None
    return list({str(slowdown): slowdown for slowdown in found}.values())


@click.command(help=__doc__)
@common_options(iterations=64)
@click.option(
    "--methods",
    callback=parsed(parse_methods),
    metavar="LIST|all",
    default="allreduce,full,d-psgd,sgp,ad-psgd",
    show_default=True,
    help=f"Some of {', '.join(METHODS)}, separated by commas. The allreduce is always measured.",
)
@click.option(
    "--topology",
    metavar="NAME",
    default="bipartite-exponential",
    show_default=True,
    help="Which ranks average with each other; python -m pycollectives topology lists the names.",
)
@compute_option(50.0)
@click.option(
    "--model-bytes",
    metavar="LIST",
    help=f"Sizes of the float32 model, separated by commas; a table each. [default: {MODEL_BYTES}; {MICRO_BYTES} with "
    "--micro]",
)
@click.option(
    "--slowdown",
    "slowdowns",
    multiple=True,
    callback=_slowdowns,
    metavar="RANK:FACTOR|none",
    help="A rank's work takes FACTOR times as long; several ranks separated by commas. If the option is repeated, "
    "every method is measured under each slowdown. [default: none]",
)
@warmup_option
@click.option("--micro", is_flag=True, help="Measure one exchange of two models, compared with MPI_Sendrecv.")
@click.option(
    "--bias",
    is_flag=True,
    help="Measure how far pairwise averaging ends from the common optimum of a quadratic, unweighted and weighted by "
    f"frequency. [default of --model-bytes {BIAS_BYTES}, --compute-ms {BIAS_COMPUTE_MS:g}, --iterations and --warmup "
    f"{BIAS_ITERATIONS}]",
)
@click.pass_context
def gossip(
    context: click.Context,
    common: Common,
    methods: list[str],
    topology: str,
    compute_ms: float,
    model_bytes: str | None,
    slowdowns: list[Slowdown],
    warmup: int,
    micro: bool,
    bias: bool,
) -> None:
    comm = MPI.COMM_WORLD
    if micro and bias:
        raise click.UsageError("--micro and --bias: expected at most one of them")
    with _wrong_use_of("--model-bytes"):
        sizes = parse_model_bytes(model_bytes or (MICRO_BYTES if micro else BIAS_BYTES if bias else MODEL_BYTES))
    with _wrong_use_of("--topology"):
        check_topology(topology, ["ad-psgd"] if micro or bias else methods, comm.size)
    with _wrong_use_of("--slowdown"):
        for slowdown in slowdowns:
            slowdown.require(comm.size)
    if common.list_only:
        _print_plan(comm.size, methods, topology, sizes, slowdowns, micro, bias)
        return
    domain = Domain.of(comm, common.ranks_per_node)
    if micro:
        with _wrong_use_of("--micro"):
            check_micro(topology, comm.size, domain.ranks_per_node)
    setting = Setting(
        ranks=comm.size,
        domain=domain,
        topology=topology,
        bytes=sizes[0],
        compute=compute_ms * 1e-3,
        iterations=common.iterations,
        warmup=warmup,
        seed=common.seed,
        verify=common.verify,
    )
    if bias:
        setting = _for_bias(context, setting)
    source = origin(MPI.Get_library_version())
    per_slowdown = len(WEIGHTINGS) if bias else len(methods)
    steps = len(sizes) * (len(NEIGHBORS) if micro else per_slowdown * len(slowdowns))
    with (
        Records(common.json if comm.rank == 0 else None) as records,
        progress_bar(steps, shown=comm.rank == 0) as step,
    ):
        if micro:
            _measure_micro(comm, setting, sizes, source, records, step)
            return
        if bias:
            _measure_bias(comm, setting, sizes, slowdowns, source, records, step)
            return
        for size in sizes:
            sized = dataclasses.replace(setting, bytes=size)
            _measure(comm, sized, methods, slowdowns, source, records, step)


def _print_plan(
    ranks: int,
    methods: list[str],
    topology: str,
    sizes: list[int],
    slowdowns: list[Slowdown],
    micro: bool,
    bias: bool,
) -> None:
    print(f"# ranks {ranks}, topology {topology}")
    for size in sizes:
        if micro:
            for neighbor in NEIGHBORS:
                print(f"exchange {size} bytes, neighbor {neighbor}")
            continue
        for slowdown in slowdowns:
            for method in [f"bias, {weighting}," for weighting in WEIGHTINGS] if bias else methods:
                print(f"{method} {size} bytes, slowdown {slowdown}")


# --- Iterations under slowdowns ---------------------------------------------------------------------------------------


def _measure(
    comm: MPI.Comm,
    setting: Setting,
    methods: list[str],
    slowdowns: list[Slowdown],
    source: Source,
    records: Records,
    step: Step,
) -> None:
    report = Report(_table(setting, source), records, source)
    compute = setting.compute
    window = Window(setting.warmup * compute, (setting.warmup + setting.iterations) * compute)
    equal: dict[str, GossipCell] = {}
    for slowdown in slowdowns:
        seconds = slowdown.seconds(ranks=comm.size, compute=compute)[comm.rank]
        baseline: GossipCell | None = None
        for name in methods:
            step(f"{name}, slowdown {slowdown}")
            method = MAKERS[name](comm, setting)
            outcomes = run_method(comm, method, compute=seconds, window=window)
            if setting.verify:
                verify(comm, name, outcomes, equal=method.equal)
            if outcomes is None:
                continue
            cell = GossipCell.of(name, slowdown, outcomes, window)
            baseline = baseline or cell  # the allreduce is the first
            if not slowdown.factors:
                equal[name] = cell
            report.add(gossip_record(setting, cell, baseline, equal.get(name)))


def _table(setting: Setting, source: Source) -> Table:
    seconds = (setting.warmup + setting.iterations) * setting.compute
    return Table(
        f"pycollectives Averaging with Neighbors v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}, topology {setting.topology}",
            f"model {setting.bytes} bytes, dtype float32, compute {setting.compute * 1e3:g} ms",
            f"each method runs for {seconds:g} s, of which the last {setting.iterations * setting.compute:g} s count; "
            "each rank ends with the iteration that spans the end",
            f"iterations {setting.iterations} and warm-up {setting.warmup}, of a worker that never waits",
            f"seed {setting.seed}, {setting.verified()}",
            made_with(source),
        ],
        COLUMNS,
        first_width=12,
    )


# --- One exchange -----------------------------------------------------------------------------------------------------


def _measure_micro(
    comm: MPI.Comm, setting: Setting, sizes: list[int], source: Source, records: Records, step: Step
) -> None:
    report = Report(_micro_table(setting, source), records, source)
    for size in sizes:
        for neighbor in NEIGHBORS:
            step(f"{size} bytes, {neighbor}")
            cell = measure_exchanges(comm, dataclasses.replace(setting, bytes=size), neighbor)
            if cell is not None:
                report.add(exchange_record(setting, cell))


def _micro_table(setting: Setting, source: Source) -> Table:
    return Table(
        f"pycollectives Exchange of Two Models v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}, topology {setting.topology}",
            f"dtype float32, {setting.ranks // 2} exchanges at a time, one after the other",
            f"iterations {setting.iterations}, seed {setting.seed}, {setting.verified()}",
            made_with(source),
        ],
        MICRO_COLUMNS,
    )


# --- The bias toward fast ranks ---------------------------------------------------------------------------------------


def _for_bias(context: click.Context, setting: Setting) -> Setting:
    """Return the setting with the defaults of --bias."""
    defaults = {"compute": BIAS_COMPUTE_MS * 1e-3, "iterations": BIAS_ITERATIONS, "warmup": BIAS_ITERATIONS}
    option_of = {"compute": "compute_ms"}
    unset = {
        name: value
        for name, value in defaults.items()
        if context.get_parameter_source(option_of.get(name, name)) is ParameterSource.DEFAULT
    }
    return dataclasses.replace(setting, **unset)


def _measure_bias(
    comm: MPI.Comm,
    setting: Setting,
    sizes: list[int],
    slowdowns: list[Slowdown],
    source: Source,
    records: Records,
    step: Step,
) -> None:
    table = _bias_table(setting, source)
    print(table.head(), flush=True)
    for size in sizes:
        for slowdown in slowdowns:
            for weighting in WEIGHTINGS:
                step(f"{weighting}, slowdown {slowdown}")
                cell = measure_bias(comm, dataclasses.replace(setting, bytes=size), slowdown, weighting)
                if cell is None:
                    continue
                print(table.row(_bias_row(setting, cell)), flush=True)
                records.write({**bias_record(setting, cell), **source})


def _bias_table(setting: Setting, source: Source) -> Table:
    return Table(
        f"pycollectives Bias of Pairwise Averaging v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}, topology {setting.topology}",
            f"dtype float32, compute {setting.compute * 1e3:g} ms, learning rate {LEARNING_RATE}",
            f"local optima {SLOW:g} of slow ranks and {OTHERS:g} of the others",
            f"iterations {setting.iterations} and warm-up {setting.warmup}, seed {setting.seed}",
            made_with(source),
        ],
        BIAS_COLUMNS,
        first_width=12,
    )


def _bias_row(setting: Setting, cell: BiasCell) -> list[float | str | None]:
    seconds = setting.iterations * setting.compute
    return [
        str(cell.slowdown),
        cell.weighting,
        cell.model,
        cell.optimum,
        100 * cell.off,
        min(cell.steps_of) / seconds,
        max(cell.steps_of) / seconds,
    ]


if __name__ == "__main__":
    launch(gossip)
