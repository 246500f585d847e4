"""Compare `skew`, `latency` and `idle` with another build of the library, to find a slowdown when it happens.

    python -m pycollectives bench compare HEAD~1 --benchmarks latency --ranks 2,8,8:1 --json compare.jsonl
    python -m pycollectives bench compare 0960f27 --other-environment ../before/.venv

The program builds this checkout and the commit, runs jobs of both in alternation, and prints the ratio of every cell.
The exit code is 1 if a cell is slower. `python -m pycollectives bench` names the file that explains the figures and the
options.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
import mpi4py

mpi4py.rc.initialize = False  # nothing here communicates

from common.builds import VENVS, Build, BuildError, checkout_around, resolve  # noqa: E402
from common.cli import parse_sizes, parsed  # noqa: E402
from common.comparison import ALL, FIGURES, SWEEPS, Comparison, Key, Passes, figures, order  # noqa: E402
from common.contest import geometric_mean, read_lines  # noqa: E402
from common.jobs import run_job  # noqa: E402
from common.mpis import MPIS, job_variables  # noqa: E402
from common.output import Column, Records, Table, machine, version  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.output import Record

BENCH = Path(__file__).resolve().parent
OPTIONS = {
    "skew": ("--iterations", "48", "--bytes", "8,32768,262144,4194304"),
    "latency": ("--iterations", "100", "--bytes", "8,32768,262144,1048576,4194304"),
    "idle": ("--iterations", "3", "--seconds", "0.5"),
}
QUICK = {
    "skew": ("--iterations", "24", "--bytes", "8,262144"),
    "latency": ("--iterations", "100", "--bytes", "8,32768,1048576"),
    "idle": ("--iterations", "2", "--seconds", "0.5"),
}
COLUMNS = [
    Column("Cell"),
    Column("Other", least_width=12),
    Column("Here", least_width=12),
    Column("Ratio", 3, least_width=9),
    Column("Least", 3, least_width=9),
    Column("Most", 3, least_width=9),
    Column("Noise", 3, least_width=9),
    Column("Verdict", least_width=14),
]
FIRST_WIDTH = 32


def _benchmarks(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in FIGURES]:
        raise ValueError(f"expected some of {', '.join(FIGURES)}, got {unknown[0]!r}")
    return list(dict.fromkeys(names))


def _ranks(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    for item in items:
        if not all(part.isdecimal() and int(part) > 0 for part in item.split(":", 1)):
            raise ValueError(f"expected RANKS or RANKS:RANKS_PER_NODE separated by commas, got {item!r}")
    return list(dict.fromkeys(items))


@dataclass(frozen=True)
class Run:
    """A benchmark with a number of ranks."""

    bench: str
    ranks: str
    options: Sequence[str]
    without_baseline: bool = False

    def figures(self, build: Build, mpi: str, installed: bool, limit: float) -> dict[Key, float]:
        """Run it once; click.ClickException if it fails. `installed`: use the build's own benchmark program."""
        number, _, per_node = self.ranks.partition(":")
        program = ["-m", "pycollectives", "bench", self.bench] if installed else [str(BENCH / f"{self.bench}.py")]
        shape = ["--ranks-per-node", per_node] if per_node else []
        if self.without_baseline:
            shape.append("--no-baseline")
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "lines.jsonl")
            command = [*MPIS[mpi].launcher, "-n", number, str(build.python), *program, *self.options, *shape]
            variables = job_variables(os.environ, MPIS[mpi], MPIS[mpi].settings[0], str(build.programs))
            outcome = run_job([*command, "--json", str(output)], variables, Path(folder), limit)
            if outcome.failure:
                raise click.ClickException(
                    f"{self.bench} at {self.ranks} ranks with {build.commit}: its job {outcome.failure}"
                )
            return figures(self.bench, self.ranks, read_lines(output.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Contest:
    """Both builds, and the way to run their jobs."""

    here: Build
    other: Build
    mpi: str
    own_program: bool
    limit: float

    def measure(self, runs: Sequence[Run], passes: int, title: str) -> Passes:
        taken = Passes()
        for turn, is_here in enumerate(order(passes)):
            build, side = (self.here, taken.here) if is_here else (self.other, taken.other)
            click.echo(f"{title}, pass {turn // 2 + 1} of {passes}: {build.commit}", err=True)
            found: dict[Key, float] = {}
            for run in runs:
                found |= run.figures(build, self.mpi, self.own_program and not is_here, self.limit)
            side.append(found)
        if unpaired := taken.unpaired():
            raise click.ClickException(f"not every pass has measured {unpaired[0]}: compare with --program same")
        return taken


@click.command(help=__doc__)
@click.argument("commit")
@click.option(
    "--benchmarks", callback=parsed(_benchmarks), metavar="LIST", default=",".join(FIGURES), show_default=True
)
@click.option(
    "--ranks",
    callback=parsed(_ranks),
    metavar="LIST",
    default="2,8",
    show_default=True,
    help="8:1 means 8 ranks with one per node, which exchange messages.",
)
@click.option("--bytes", "sizes", callback=parsed(parse_sizes), metavar="LIST", help="Other message sizes.")
@click.option("--passes", type=click.IntRange(min=2), metavar="N", help="Runs of each build. [default: 4; quick: 3]")
@click.option("--quick", is_flag=True, help="Fewer sizes, iterations and passes; takes about three minutes.")
@click.option(
    "--slower-by",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="Percentage by which a cell may be slower.",
)
@click.option(
    "--program",
    type=click.Choice(["same", "own"]),
    default="same",
    show_default=True,
    help="same: measure both builds with the benchmarks of this checkout. own: measure each build with its own "
    "benchmarks, if the interface has changed.",
)
@click.option(
    "--other-environment",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="FOLDER",
    help="A virtual environment in which the commit is installed; the commit is not built.",
)
@click.option(
    "--environment",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="FOLDER",
    help="The same for this checkout, at any commit.",
)
@click.option("--mpi", type=click.Choice(sorted(VENVS)), default="openmpi", show_default=True)
@click.option(
    "--limit", type=click.FloatRange(min=1), default=300.0, show_default=True, help="Time limit of a job in seconds."
)
@click.option(
    "--json", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JSON lines here as well."
)
def compare(
    commit: str,
    benchmarks: list[str],
    ranks: list[str],
    sizes: list[int] | None,
    passes: int | None,
    quick: bool,
    slower_by: float,
    program: str,
    other_environment: Path | None,
    environment: Path | None,
    mpi: str,
    limit: float,
    json: Path | None,
) -> None:
    passes = passes or (3 if quick else 4)
    options = QUICK if quick else OPTIONS
    only = [] if sizes is None else ["--bytes", ",".join(map(str, sizes))]
    runs = [
        Run(bench, shape, [*options[bench], *(only if bench in SWEEPS else [])], program == "same" and bench in SWEEPS)
        for bench in benchmarks
        for shape in ranks
    ]
    try:
        here, other = _builds(commit, environment, other_environment, mpi)
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    contest = Contest(here, other, mpi, program == "own", limit)
    first = contest.measure(runs, passes, "first round").comparisons()
    suspects = {(one.key.bench, one.key.ranks) for one in first if one.is_slower(slower_by / 100)}
    again = [run for run in runs if (run.bench, run.ranks) in suspects]
    second = contest.measure(again, passes, "slower cells, again").comparisons() if again else []
    confirmed = {one.key for one in second if one.is_slower(slower_by / 100)}
    verdicts = {one.key: _verdict(one, slower_by / 100, confirmed) for one in first}
    _report(contest, passes, slower_by, first, verdicts)
    with Records(json) as records:
        for number, comparisons in enumerate((first, second), start=1):
            for one in comparisons:
                records.write({**_record(contest, number, one), "verdict": verdicts[one.key]})
    slower = [str(key) for key, verdict in verdicts.items() if verdict == "slower"]
    if slower:
        raise click.ClickException(
            f"{len(slower)} cells are slower than with {other.commit} by more than {slower_by:g} % and the noise, "
            f"twice: {'; '.join(slower)}"
        )


def _builds(commit: str, environment: Path | None, others: Path | None, mpi: str) -> tuple[Build, Build]:
    """Return the builds of this checkout and of the commit; build those without an environment."""
    top = checkout_around(Path.cwd())
    full = resolve(top, commit)
    if environment is None:
        click.echo(f"building the checkout {top}", err=True)
        here = Build.of_checkout(top, mpi)
    else:
        here = Build.installed(environment)
    if others is None:
        folder = top / "build" / "compare" / full[:12]
        click.echo(f"building {full[:12]} in {folder}; the first time takes minutes", err=True)
        other = Build.of_commit(top, full, folder, mpi, here)
    else:
        other = Build.installed(others)
    if not full.startswith(other.commit.removesuffix("-dirty")):
        raise BuildError(f"expected a build of {full[:12]} in {other.programs.parent}, found one of {other.commit}")
    other.require_like(here, mpi)
    return here, other


def _verdict(one: Comparison, limit: float, confirmed: set[Key]) -> str:
    if one.is_slower(limit):
        return "slower" if one.key in confirmed else "slower once"
    return "faster" if 1 / one.ratio > 1 + max(limit, one.noise) else "-"


def _report(
    contest: Contest, passes: int, slower_by: float, comparisons: list[Comparison], verdicts: dict[Key, str]
) -> None:
    table = Table(
        f"pycollectives Comparison of Builds v{version()}",
        [
            f"here {contest.here.commit}, other {contest.other.commit}, {MPIS[contest.mpi].title}",
            f"passes {passes}, slower: by more than {slower_by:g} % and the noise, twice",
            "benchmarks of " + ("each build" if contest.own_program else "this checkout"),
        ],
        COLUMNS,
        FIRST_WIDTH,
    )
    print(table.head())
    for one in comparisons:
        spread = (one.ratio, min(one.ratios), max(one.ratios), one.noise)
        print(table.row([str(one.key), median(one.other), median(one.here), *spread, verdicts[one.key]]))
    if ratios := [one.ratio for one in comparisons if one.key.bench in SWEEPS and one.key.cell != ALL]:
        cells = f"{len(ratios)} cells of {' and '.join(SWEEPS)}"
        print(f"# geometric mean of the ratios of {cells}: {geometric_mean(ratios):.3f}")
    sys.stdout.flush()


def _record(contest: Contest, number: int, one: Comparison) -> Record:
    figures = {"here": one.here, "other": one.other, "ratios": one.ratios}
    return {
        "bench": "compare",
        "of": one.key.bench,
        "ranks": one.key.ranks,
        "cell": one.key.cell,
        "round": number,
        **{name: [round(value, 4) for value in values] for name, values in figures.items()},
        "ratio": round(one.ratio, 4),
        "noise": round(one.noise, 4),
        "commit": contest.here.commit,
        "other_commit": contest.other.commit,
        "program": "own" if contest.own_program else "same",
        "mpi": contest.mpi,
        "machine": machine(),
    }


if __name__ == "__main__":
    compare()
