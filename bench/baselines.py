"""Compare the balanced latency of `Full()` with the fastest MPI_Allreduce of all MPIs available as wheels.

    python -m pycollectives bench baselines --ranks 2,8 --json baselines.jsonl

Start it without mpirun. It starts the jobs itself, in rotation: one of ours, and one for each setting of each MPI.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import mpi4py

mpi4py.rc.initialize = False  # nothing here communicates

from mpi4py import MPI  # noqa: E402

from common.cli import Common, common_options, parse_sizes, parsed  # noqa: E402
from common.contest import Cell, Contestant, compare, geometric_mean, read_lines, within_reach  # noqa: E402
from common.environments import Environment, NotInstalledError  # noqa: E402
from common.jobs import run_job  # noqa: E402
from common.mpis import MPICH, MPIS, OPEN_MPI, Mpi, Setting, job_variables, parse_mpis  # noqa: E402
from common.output import Column, Domain, Records, Table, mpi_name, origin, version  # noqa: E402

if TYPE_CHECKING:
    from common.output import Record

BENCH = Path(__file__).resolve().parent
SIZES = "8,4096,32768,262144,1048576,4194304"

COLUMNS = [
    Column("Size"),
    Column("Full(us)"),
    Column("Best MPI(us)"),
    Column("Speedup"),
    Column("Default(us)"),
    Column("Over default"),
    Column("Best MPI and setting", least_width=44),
]


@dataclass(frozen=True)
class Entry:
    """A contestant, and the way to start its jobs."""

    contestant: Contestant
    subject: str
    environment: Environment
    mpi: Mpi
    setting: Setting

    def command(self, ranks: int, options: list[str], output: Path) -> list[str]:
        program = [str(self.environment.python), "-m", "common.balanced", "--subject", self.subject]
        return [
            *self.mpi.launcher,
            "-n",
            str(ranks),
            *program,
            "--ranks",
            str(ranks),
            *options,
            "--output",
            str(output),
        ]

    def run(self, ranks: int, options: list[str], limit: float) -> None:
        """Run one job; measurements made before a failure count."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "lines.jsonl")
            variables = job_variables(os.environ, self.mpi, self.setting, str(self.environment.programs))
            command = self.command(ranks, options, output)
            outcome = run_job(command, variables, BENCH, limit)  # in BENCH, where `common` is found
            self.contestant.failure = outcome.failure
            if output.exists():
                self.contestant.lines += read_lines(output.read_text(encoding="utf-8"))


@click.command(help=__doc__)
@common_options(iterations=100)
@click.option("--ranks", callback=parsed(parse_sizes), metavar="LIST", default="2,8", show_default=True)
@click.option("--bytes", "sizes", callback=parsed(parse_sizes), metavar="LIST", default=SIZES, show_default=True)
@click.option("--mpis", callback=parsed(parse_mpis), metavar="LIST", default=",".join(MPIS), show_default=True)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Runs of each setting that is within reach of the fastest, in rotation. Their medians are compared.",
)
@click.option(
    "--limit", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Time limit of a job in seconds."
)
@click.option(
    "--environments",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/baselines"),
    show_default=True,
    help="Folder of the MPIs' Python environments; missing ones are created.",
)
def baselines(
    common: Common,
    ranks: list[int],
    sizes: list[int],
    mpis: list[Mpi],
    runs: int,
    limit: float,
    environments: Path,
) -> None:
    if wrong := [size for size in sizes if size % 4]:
        raise click.UsageError(f"{wrong[0]} bytes are not a whole number of float32 elements")
    if common.list_only:
        for count in ranks:
            print(f"# ranks {count}")
            print("\n".join(["Full()", *(f"{mpi.title}, {setting.name}" for mpi in mpis for setting in mpi.settings)]))
        return
    found = _environments(mpis, environments)
    options = _job_options(common, sizes)
    with Records(common.json) as records:
        for count in ranks:
            ours, *others = _entries(found)
            contestants = [entry.contestant for entry in others]
            for run in range(runs):
                click.echo(f"{count} ranks, run {run + 1} of {runs}", err=True)
                for entry in [ours, *others][:: 1 if run % 2 == 0 else -1]:
                    if entry.contestant.goes_on:
                        entry.run(count, options, limit)
                if ours.contestant.failure:
                    raise click.ClickException(f"Full() at {count} ranks: its job {ours.contestant.failure}")
                if run == 0:
                    within_reach(contestants, sizes)
            _report(common, count, sizes, runs, ours.contestant, contestants, records)


def _environments(mpis: list[Mpi], folder: Path) -> list[tuple[Mpi, Environment]]:
    found = []
    for mpi in mpis:
        try:
            found.append((mpi, Environment.of(mpi, folder, say=lambda text: click.echo(text, err=True))))
        except NotInstalledError as error:
            click.echo(f"{mpi.title} is left out: {error}", err=True)
    if not found:
        raise click.ClickException("none of the MPIs could be installed")
    return found


def _entries(found: list[tuple[Mpi, Environment]]) -> list[Entry]:
    """Return our entry, with the MPI that the library was built with, and then the others."""
    own = OPEN_MPI if "Open MPI" in MPI.Get_library_version() else MPICH
    ours = Entry(Contestant("Full()"), "full", Environment.here(), own, Setting("default"))
    return [
        ours,
        *(
            Entry(Contestant(f"{mpi.title}, {setting.name}"), "mpi", environment, mpi, setting)
            for mpi, environment in found
            for setting in mpi.settings
        ),
    ]


def _job_options(common: Common, sizes: list[int]) -> list[str]:
    options = ["--bytes", ",".join(map(str, sizes)), "--iterations", str(common.iterations), "--seed", str(common.seed)]
    if not common.verify:
        options.append("--no-verify")
    if common.ranks_per_node is not None:
        options += ["--ranks-per-node", str(common.ranks_per_node)]
    return options


def _report(
    common: Common,
    ranks: int,
    sizes: list[int],
    runs: int,
    ours: Contestant,
    others: list[Contestant],
    records: Records,
) -> None:
    domain = Domain(int(ours.lines[0]["ranks_per_node"]))
    source = origin(ours.lines[0]["library"])
    libraries = dict.fromkeys(mpi_name(other.lines[0]["library"]) for other in others if other.lines)
    table = Table(
        f"pycollectives Full Allreduce and the Fastest MPI_Allreduce v{version()}",
        [
            f"ranks {ranks}, {domain}",
            f"dtype float32, late accumulate, algorithm auto, seed {common.seed}",
            f"iterations {common.iterations}, runs {runs}, results {'verified' if common.verify else 'not verified'}",
            f"ours on {source['mpi']}, commit {source['commit']}",
            f"compared with {len(others)} settings of {'; '.join(libraries)}",
            *(f"{other.name}: its job {other.failure}" for other in others if other.failure),
            *(f"{other.name}: too slow at every size for a second run" for other in others if other.too_slow),
        ],
        COLUMNS,
    )
    print(table.head(), flush=True)
    cells = [cell for size in sizes if (cell := compare(ours, others, size)) is not None]
    if len(cells) < len(sizes):
        raise click.ClickException(f"at {ranks} ranks no MPI could be measured at all sizes")
    for cell in cells:
        print(table.row(_row(cell)), flush=True)
        records.write({**_record(common, ranks, runs, domain, cell), "stationary": ours.stationary, **source})
    speedups = [cell.speedup for cell in cells]
    print(f"# geometric mean of the speedups {geometric_mean(speedups):.2f}, least {min(speedups):.2f}", flush=True)


def _row(cell: Cell) -> list[float | str | None]:
    default = None if cell.default_us is None else cell.default_us.mean
    means = [cell.bytes, cell.ours.mean, cell.best_us.mean, cell.speedup, default, cell.speedup_over_default]
    return [*means, cell.best]


def _record(common: Common, ranks: int, runs: int, domain: Domain, cell: Cell) -> Record:
    of = {name: None if mean is None else round(mean, 3) for name, mean in cell.mean_of.items()}
    over_default = cell.speedup_over_default
    record: dict[str, Any] = {
        "bench": "baselines",
        "collective": "partial_allreduce",
        "policy": "full",
        "path": domain.path,
        "ranks": ranks,
        "ranks_per_node": domain.ranks_per_node,
        "bytes": cell.bytes,
        "dtype": "float32",
        "algorithm": "auto",
        "late": "accumulate",
        "skew": "none",
        "skew_us": 0.0,
        "seed": common.seed,
        "iterations": common.iterations,
        "runs": runs,
        "latency_us": cell.ours.as_json(),
        "baseline": cell.best,
        "baseline_us": cell.best_us.as_json(),
        "speedup": round(cell.speedup, 4),
        "default": cell.default,
        "default_us": None if cell.default_us is None else cell.default_us.as_json(),
        "speedup_over_default": None if over_default is None else round(over_default, 4),
        "mean_us_of": of,
        "verified": common.verify,
    }
    return record


if __name__ == "__main__":
    if int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1 or int(os.environ.get("PMI_SIZE", "1")) > 1:
        sys.exit("error: start this benchmark without mpirun, since it starts the jobs itself")
    baselines()
