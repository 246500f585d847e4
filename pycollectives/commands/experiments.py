"""The commands `python -m pycollectives experiments list | show | run | plot`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..support.extras import how_to_install
from . import print_table, readable


@click.group()
def experiments() -> None:
    """Repeat measurements of the papers with this library, and compare each method with a baseline."""


@experiments.command(name="list")
def list_command() -> None:
    """List the experiments, and the commands that repeat other figures and tables of the papers."""
    from ..experiments.benchmarks import MEASURED
    from ..experiments.experiment import catalogue

    rows = [
        (one.name, one.figure, str(one.ranks), str(len(one.jobs) * len(one.seeds)), one.title) for one in catalogue()
    ]
    print_table(("name", "figure", "ranks", "jobs", "what"), rows)
    click.echo("\nRun an experiment: mpirun -n RANKS python -m pycollectives experiments run NAME")
    click.echo("\nOther figures, without training:\n")
    others = [(of.figure, "-" if of.ranks is None else str(of.ranks), of.command, of.title) for of in MEASURED]
    print_table(("figure", "ranks", "python -m pycollectives ...", "what"), others)


@experiments.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the settings and the minimum run time of each job in an experiment.

    NAME is a built-in experiment or a .toml file.
    """
    from ..experiments.experiment import find
    from ..experiments.ideal import expected_s

    with readable():
        experiment = find(name)
    rows = []
    total = 0.0
    for job in experiment.jobs:
        seconds = expected_s(job.settings, experiment.ranks)
        total += 0.0 if seconds is None else seconds * len(experiment.seeds)
        of, time = job.settings, "-" if seconds is None else f"{seconds:.1f}"
        rows.append((job.name, job.baseline or "-", *map(str, (of.method, of.load, of.optimizer, of.epochs)), time))
    seeds = ", ".join(map(str, experiment.seeds))
    click.echo(f"{experiment.title} ({experiment.figure}). {experiment.scale}")
    click.echo(f"{experiment.ranks} ranks, seeds {seeds}, target loss {experiment.target_loss}")
    print_table(("job", "baseline", "method", "load", "optimizer", "epochs", "seconds"), rows, width=200)
    click.echo(f"At least {total / 60:.0f} minutes for all seeds, plus the time to start the jobs.")


@experiments.command()
@click.argument("name")
@click.option("--only", multiple=True, metavar="JOB", help="Run jobs whose name contains JOB, and their baselines.")
@click.option("--seeds", help="Run only these seeds, separated by commas.  [default: all]")
@click.option("--ranks", type=click.IntRange(1), help="The number of ranks, if it differs from the experiment's.")
@click.option(
    "--output",
    "-o",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file for the results.  [default: NAME.json, or NAME-part.json with one of the options above]",
)
def run(name: str, only: tuple[str, ...], seeds: str | None, ranks: int | None, path: Path | None) -> None:
    """Run an experiment: `mpirun -n 8 python -m pycollectives experiments run hyperplane`.

    NAME is a built-in experiment or a .toml file.
    """
    from mpi4py import MPI

    from ..experiments.experiment import find
    from ..experiments.report import table
    from ..experiments.runner import require
    from ..experiments.runner import run as run_experiment
    from ..train import failing
    from ..train.files import dumps, replace

    world = MPI.COMM_WORLD
    failures = world.Dup()

    def say(text: str) -> None:
        if world.rank == 0:
            click.echo(text, err=True)

    try:
        experiment = find(name).part(only, seeds, ranks)
        require(experiment, world.size)
        is_part = only or seeds is not None or ranks is not None
        path = path or Path(f"{experiment.name}{'-part' if is_part else ''}.json")
        if world.rank == 0:
            _require_writable(path)  # fail now rather than after the run
        say(f"{experiment.title} ({experiment.figure}). {experiment.scale}")
        for results in run_experiment(experiment, world, say):
            if world.rank == 0:
                replace(path, dumps(results, indent=1) + "\n")
    except (Exception, KeyboardInterrupt) as error:
        failing.explain(failures, error)
        raise SystemExit(1) from error
    if world.rank == 0:
        print_table(*table(results), width=160)


@experiments.command()
@click.argument("name")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="PNG file.  [default: next to the results]"
)
def plot(name: str, output: Path | None) -> None:
    """Print and plot an experiment's results, NAME.json. NAME can also be a .toml or .json file."""
    from ..experiments import report

    path = Path(name if name.endswith(".json") else f"{name.removesuffix('.toml')}.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        print_table(*report.table(found), width=160)
    except FileNotFoundError:
        raise click.ClickException(f"{path} does not exist: run `experiments run` first, which writes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{path} does not contain the results of an experiment: {error!r}") from None
    try:
        with readable(OSError):
            report.plot(found, output or path.with_suffix(".png"))
    except ImportError:
        raise click.ClickException(f"figures need matplotlib: {how_to_install('bench')}") from None


def _require_writable(path: Path) -> None:
    """Raise `OSError` if a file cannot be written. Leave no new file behind, in case the run fails."""
    path = path.resolve()
    is_new = not path.exists()
    path.touch()
    if is_new:
        path.unlink()
