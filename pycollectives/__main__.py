"""The command line: `python -m pycollectives info | tune | simulate | bench | dump | trace merge | slurm`."""

from __future__ import annotations

import dataclasses
import itertools
import json
import runpy
import sys
import tempfile
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import __version__
from .commands.experiments import experiments
from .commands.slurm import slurm
from .commands.train import train
from .diagnostics import flight, traces
from .partial_allreduce import policies
from .selection import choice, tables
from .simulation import workload
from .simulation.allreduce import Costs, simulate
from .support.environment import Settings, selection_files, settings
from .tuning import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

TRANSPORTS = ("mpi", "loopback", "simulated")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Run the tools of pycollectives: collectives that do not wait for stragglers."""


@main.command()
def info() -> None:
    """Show version, MPI, thread level, transports, progress, algorithms and the selection table."""
    from rich.table import Table

    from .support.native import LIBRARY, MPI, THREAD_LEVELS, core

    started = MPI.Is_initialized() and not MPI.Is_finalized()
    if started and MPI.COMM_WORLD.rank != 0:
        return
    environment = _settings()
    try:
        table = tables.in_use()
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    facts = Table(show_header=False, box=None)
    for fact, value in (
        ("pycollectives", __version__),
        ("MPI library", LIBRARY),
        ("MPI standard", ".".join(map(str, MPI.Get_version()))),
        ("thread level", THREAD_LEVELS[MPI.Query_thread()] if started else "MPI is not initialised"),
        ("ranks", str(MPI.COMM_WORLD.size) if started else "MPI is not initialised"),
        ("transports", ", ".join(TRANSPORTS)),
        ("progress", environment.progress),
        ("timeout", "none" if environment.timeout is None else f"{environment.timeout} s"),
        ("trace", str(environment.trace or "off")),
        ("selection table", f"{table.name}, digest {table.digest}"),
        ("measured on", str(table.machine or "see below")),
    ):
        facts.add_row(fact, value)

    known = Table("algorithm", "steps", "bytes sent per rank", "reference", title="Allreduce algorithms")
    for algorithm in core.algorithms():
        known.add_row(*(str(algorithm[key]) for key in ("name", "steps", "bytes", "reference")))

    console = report.console()
    for part in (facts, known, report.selection_table(table)):
        console.print(part)
    console.print(f"Measured by: {table.source}.")


def _settings() -> Settings:
    try:
        return settings()
    except ValueError as error:
        raise click.ClickException(str(error)) from error


@main.command(name="simulate")
@click.option(
    "--policy",
    "policy_text",
    default="solo",
    show_default=True,
    help="solo, majority, quorum:K[:GRACE_S], any-of:M, all-of:M or full.",
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
    help="For --load trace: CSV, a line per call, a column per rank or one for all, in seconds; lines repeat.",
)
@click.option("--ranks", "-n", default=8, show_default=True, type=click.IntRange(1, 65536))
@click.option(
    "--calls",
    default=64,
    show_default=True,
    type=click.IntRange(1),
    help="Of the fastest rank; figures are of the time until then.",
)
@click.option("--work-us", default=0.0, show_default=True, type=click.FloatRange(0), help="Work common to all ranks.")
@click.option(
    "--skew-us", default=1000.0, show_default=True, type=click.FloatRange(0), help="Scale of the differences."
)
@click.option(
    "--barrier/--no-barrier",
    default=False,
    show_default=True,
    help="All ranks start each call's work together, as in bench/skew.py.",
)
@click.option("--bytes", "nbytes", default=8, show_default=True, type=click.IntRange(0))
@click.option("--algorithm", default="auto", show_default=True)
@click.option("--late", default="accumulate", show_default=True, type=click.Choice(["accumulate", "replace", "drop"]))
@click.option("--max-staleness", default=None, type=click.IntRange(0))
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Of loads, policies and deliveries.")
@click.option("--latency-us", default=1.5, show_default=True, type=click.FloatRange(0), help="LogGP's L.")
@click.option("--overhead-us", default=0.5, show_default=True, type=click.FloatRange(0), help="LogGP's o.")
@click.option("--gap-ns", default=0.1, show_default=True, type=click.FloatRange(0), help="LogGP's G, per byte.")
@click.option("--reduce-ns", default=0.1, show_default=True, type=click.FloatRange(0), help="Reduction, per byte.")
@click.option("--ideal", is_flag=True, help="Communication costs nothing: the limit of the policy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate_command(
    policy_text: str,
    load: str,
    trace_file: Path | None,
    ranks: int,
    calls: int,
    work_us: float,
    skew_us: float,
    barrier: bool,
    nbytes: int,
    algorithm: str,
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
    """Run a policy under a load in virtual time, at any number of ranks, without MPI."""
    import mpi4py

    mpi4py.rc.initialize = False  # nothing here communicates
    from .support.native import core

    try:
        policy = policies.parse(policy_text, seed=seed)
        if load == "trace":
            if trace_file is None:
                raise ValueError("--load trace needs --trace FILE")
            work = workload.from_csv(trace_file, ranks=ranks, calls=calls)
        else:
            work = workload.make(load, ranks=ranks, calls=calls, work=work_us * 1e-6, skew=skew_us * 1e-6, seed=seed)
        known = [str(entry["name"]) for entry in core.algorithms()]
        chosen = choice.resolve(
            algorithm,
            known,
            tables.in_use(),
            ranks=ranks,
            nodes=ranks,
            nbytes=nbytes,
            sparse=choice.is_sparse(policy, late, max_staleness),
        )
        algorithm = chosen.name
        costs = Costs() if ideal else Costs(latency_us * 1e-6, overhead_us * 1e-6, gap_ns * 1e-9, reduce_ns * 1e-9)
        summary = simulate(
            work,
            policy,
            nbytes=nbytes,
            algorithm=algorithm,
            costs=costs,
            late=late,
            max_staleness=max_staleness,
            barrier=barrier,
            delivery_seed=seed,
        )
    except (ValueError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error

    figures = dataclasses.asdict(summary)
    if as_json:
        setting = {"policy": policy_text, "load": load, "bytes": nbytes, "algorithm": algorithm, "seed": seed}
        click.echo(json.dumps({**setting, **figures}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{policy!r}, {load} load, {nbytes} B, {algorithm}", show_header=False)
    for label, value in (
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
    ):
        table.add_row(label, value)
    Console(highlight=False).print(table)


def _sizes(context: click.Context, option: click.Parameter, text: str) -> list[int]:
    sizes = [size.strip() for size in text.split(",")]
    if not all(size.isdecimal() and int(size) > 0 and int(size) % 4 == 0 for size in sizes):
        raise click.BadParameter(f"expected multiples of 4, separated by commas; got {text!r}")
    return sorted(set(map(int, sizes)))


@main.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead of ~/.config/pycollectives/selection.json, which the library looks for.",
)
@click.option(
    "--bytes",
    "sizes",
    metavar="LIST",
    callback=_sizes,
    default="8,1024,8192,65536,262144,1048576,4194304",
    show_default=True,
    help="Of one rank's data. Each speaks for sizes up to 4 times smaller and larger.",
)
@click.option(
    "--seconds",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Nothing new is begun after that; a choice differs from the built-in one after 3 passes at the earliest.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the file that was written, instead of tables.")
def tune(output: Path | None, sizes: list[int], seconds: float, as_json: bool) -> None:
    """Measure this machine for algorithm="auto": `mpirun -n P python -m pycollectives tune`.

    Times boards and schedules on 2, 4, 8, ... P ranks and writes the table that the library then uses. Run it as your
    programs run: with their launcher, their number of ranks per machine, and nothing else on the machine.
    """
    from .support.native import MPI

    if not MPI.Is_initialized():
        raise click.ClickException("tuning needs MPI: unset MPI4PY_RC_INITIALIZE")
    world = MPI.COMM_WORLD
    try:
        problem = world.bcast(_cannot_tune(world, output) if world.rank == 0 else None)
        if problem is None:
            _tune(world, output or _users_table(), sizes, seconds, as_json)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)
    if problem is not None:
        if world.rank == 0:
            raise click.ClickException(problem)
        sys.exit(1)


def _users_table() -> Path:
    path = selection_files()[1]
    if path is None:
        raise ValueError("there is no home folder for the table: say --output FILE")
    return path


def _cannot_tune(world: MPI.Comm, output: Path | None) -> str | None:
    """Return why there is no use in measuring, if there is none; on rank 0."""
    if world.size < 2:
        return (
            "expected at least 2 ranks, got 1: run `mpirun -n P python -m pycollectives tune`, with as many ranks as "
            "your programs have, and the mpirun of the MPI library that mpi4py uses"
        )
    try:
        path = output or _users_table()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        return f"--output: the table could not be written: {error}"
    return None


def _tune(world: MPI.Comm, path: Path, sizes: list[int], seconds: float, as_json: bool) -> None:
    """Measure, write and print; collective."""
    from .support.native import core
    from .tuning.measuring import Tuning

    tuning = Tuning(world, sizes, seconds, [str(entry["name"]) for entry in core.algorithms()])
    if world.rank != 0:
        tuning.run()
        return
    with report.progress(seconds) as tuning.told:
        measured = tuning.run()
    table, document = tuning.document(measured)
    tables.write(path, document)
    if as_json:
        click.echo(json.dumps(document))
        return
    console = report.console()
    console.print(report.measured_table(measured, tables.built_in()))
    console.print(report.selection_table(table))
    console.print(f"{measured.passes} complete passes in {measured.elapsed:.0f} s; written to {path}", soft_wrap=True)
    for note in tuning.notes(measured):
        console.print(f"Note: {note}", soft_wrap=True)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark: `mpirun -n 8 python -m pycollectives bench skew [OPTIONS]`. Without a name, list them."""
    folder = _bench_folder()
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    if name is None:
        click.echo("\n".join(names))
        return
    if name not in names:
        raise click.ClickException(f"expected a benchmark of {', '.join(names)}; got {name!r}")
    if name != "plot":
        from .support.native import MPI

        if not MPI.Is_initialized():
            raise click.ClickException("a benchmark needs MPI: unset MPI4PY_RC_INITIALIZE")
    script = folder / f"{name}.py"
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(folder))  # as `python bench/NAME.py` does
    runpy.run_path(str(script), run_name="__main__")


def _bench_folder() -> Path:
    """Return the folder of the scripts: installed as `pycollectives_bench`, in a source tree `bench`."""
    installed = find_spec("pycollectives_bench")
    places = list(installed.submodule_search_locations or ()) if installed else []
    for place in (*map(Path, places), Path(__file__).resolve().parent.parent / "bench"):
        if (place / "skew.py").is_file():
            return place
    raise click.ClickException("the benchmarks are not installed beside this package")


@main.command()
@click.argument("pids", nargs=-1, metavar="[PID]...", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print all records as one JSON object.")
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds to wait for answers.",
)
def dump(pids: tuple[int, ...], as_json: bool, timeout: float) -> None:
    """Show what running programs do: the newest rounds of processes on this machine, by default of all of yours.

    Each is sent SIGUSR2 and writes its record into its PYC_DUMP_DIR, or its working folder.
    """
    try:
        asked = pids or tuple(flight.listening())
        if not asked:
            raise click.ClickException("none of your processes on this machine has a communicator of pycollectives")
        documents, silent = flight.request(asked, timeout)
    except flight.DumpError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"format": 1, "processes": list(documents.values()), "silent": silent}))
    elif documents:
        _print_records(documents)
    if silent:
        raise click.ClickException("; ".join(silent))


def _print_records(documents: dict[Path, flight.Document]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = flight.rows(documents.values())
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    for group in dict.fromkeys(row.group for row in found):
        columns = ("rank", "pid", "collective", "newest round", "state", "waiting for", "not arrived")
        table = Table(*columns, title=f"Communicator {group}")
        for row in found:
            if row.group == group:
                missing = list_ranks(row.not_arrived)
                if row.unknown:
                    missing += f"{'; ' if missing else ''}no record of {list_ranks(row.unknown)}"
                newest = "" if row.round is None else row.round
                cells = (row.rank, row.pid, row.collective, newest, row.state, row.waiting, missing)
                table.add_row(*(Text(str(cell)) for cell in cells))
        console.print(table)
    if not found:
        console.print("All communicators are closed.")
    for path in documents:
        console.print(f"{path}", soft_wrap=True)


def list_ranks(ranks: Sequence[int]) -> str:
    """Write ranks shortly: 0, 2-5."""
    text = []
    for _, run in itertools.groupby(enumerate(ranks), lambda pair: pair[1] - pair[0]):
        members = [rank for _, rank in run]
        text.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(text)


@main.group()
def trace() -> None:
    """Work on traces written with PYC_TRACE."""


@trace.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path))
def merge(files: tuple[Path, ...], out: Path) -> None:
    """Join the traces of all ranks into one file for chrome://tracing or ui.perfetto.dev."""
    try:
        events = traces.merge(files, out)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: {events} events of {len(files)} ranks")


main.add_command(train)
main.add_command(experiments)
main.add_command(slurm)


if __name__ == "__main__":
    main(prog_name="python -m pycollectives")
