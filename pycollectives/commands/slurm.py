"""The commands `python -m pycollectives slurm render | submit | sweep | check-ranks`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..slurm import profiles, scripts, submission
from . import readable

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.group()
def slurm() -> None:
    """Write and submit batch scripts: `python -m pycollectives slurm submit --cluster alps --nodes 2 -- COMMAND`."""


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


JOB = _options(
    click.option(
        "--cluster",
        metavar="NAME",
        help=f"Built-in profile: {', '.join(profiles.names())}.  [default: generic]",
    ),
    click.option(
        "--profile", "profile_file", metavar="FILE", type=click.Path(path_type=Path), help="TOML file with a profile."
    ),
    click.option("--nodes", "-N", type=int),
    click.option("--tasks-per-node", type=int, help="Ranks per node."),
    click.option(
        "--device",
        type=click.Choice(profiles.DEVICES),
        help="cuda: request GPUs.  [default: cuda if COMMAND has --device cuda]",
    ),
    click.option("--partition", "-p"),
    click.option("--constraint", "-C"),
    click.option("--account", "-A"),
    click.option("--time", "-t", help="Time limit: minutes, hours:minutes:seconds or days-hours:minutes:seconds."),
    click.option("--job-name", "-J"),
    click.option("--launcher", help=f"One of {', '.join(profiles.LAUNCHERS)}."),
    click.option(
        "--on-failure",
        help="Effect of a rank's death. raise: the job ends. continue: other ranks continue (needs --launcher mpirun).",
    ),
    click.option(
        "--spares",
        type=int,
        help="With --on-failure continue: number of extra ranks that wait to replace dead ranks. Sets PYC_SPARES.",
    ),
    click.option(
        "--launcher-option",
        "launcher_options",
        multiple=True,
        help="Option for the launcher, as in --launcher-option=--mpi=pmix.",
    ),
    click.option("--folder", default="runs", show_default=True, help="Folder of logs (JOB.log) and results (JOB/)."),
    click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."),
)
SUBMISSION = _options(
    click.option("--wait", is_flag=True, help="Wait until the job has ended; exit with its status."),
    click.option("--test-only", is_flag=True, help="Only ask sbatch whether it would accept the job."),
)


@slurm.command(context_settings=COMMAND)
@JOB
def render(folder: str, command: tuple[str, ...], **given: Any) -> None:
    """Print the batch script that runs COMMAND on all ranks. {results} in COMMAND becomes the job's folder."""
    click.echo(_script([command], folder, given), nl=False)


@slurm.command(context_settings=COMMAND)
@SUBMISSION
@JOB
def submit(folder: str, command: tuple[str, ...], wait: bool, test_only: bool, **given: Any) -> None:
    """Submit the batch script with sbatch, and print the id of the job."""
    _submit(_script([command], folder, given), folder, wait=wait, test_only=test_only)


@slurm.command(context_settings=COMMAND)
@click.option("--method", multiple=True, help="Value for {method} in COMMAND. Repeat the option for more jobs.")
@click.option("--seed", multiple=True, help="Value for {seed} in COMMAND. Repeat the option for more jobs.")
@click.option("--at-most", type=click.IntRange(1), help="Maximum number of jobs that run at the same time.")
@click.option("--dry-run", is_flag=True, help="Print the batch script without submitting it.")
@SUBMISSION
@JOB
def sweep(
    folder: str,
    command: tuple[str, ...],
    method: tuple[str, ...],
    seed: tuple[str, ...],
    at_most: int | None,
    dry_run: bool,
    wait: bool,
    test_only: bool,
    **given: Any,
) -> None:
    """Submit a job array that runs COMMAND with every combination of methods and seeds."""
    with readable():
        commands = scripts.product(command, method=method, seed=seed)
    script = _script(commands, folder, given, array=True, at_most=at_most)
    if dry_run:
        click.echo(script, nl=False)
    else:
        _submit(script, folder, wait=wait, test_only=test_only)


@slurm.command(name="check-ranks")
@click.argument("ranks", type=click.IntRange(1))
def check_ranks(ranks: int) -> None:
    """Check that the launcher has started RANKS ranks, and print their environment. Jobs run this command first."""
    with readable(ImportError):
        from ..slurm.ranks import complaint, describe, speaks
        from ..support.native import MPI

    world = MPI.COMM_WORLD
    if problem := complaint(world, ranks):
        if speaks(world):
            click.echo(f"Error: {problem}", err=True)
        sys.exit(1)
    for name, value in describe(world):
        click.echo(f"{name}: {value}")


def _script(
    commands: list[tuple[str, ...]] | list[list[str]],
    folder: str,
    given: dict[str, Any],
    **array: Any,
) -> str:
    with readable():
        return scripts.render(_profile(**given), commands, folder=folder, **array)


def _profile(cluster: str | None, profile_file: Path | None, launcher_options: tuple[str, ...], **given: Any) -> Any:
    """Return the profile of a file or a cluster; options of the command line override its values."""
    overrides = {key: value for key, value in given.items() if value is not None}
    if launcher_options:
        overrides["launcher_options"] = list(launcher_options)
    if profile_file is None:
        return profiles.built_in(cluster or "generic", overrides)
    if cluster is not None:
        raise ValueError(
            'expected --cluster or --profile, got both; to extend a cluster\'s profile, set base = "NAME" in the file'
        )
    return profiles.load(profile_file, overrides)


def _submit(script: str, folder: str, *, wait: bool, test_only: bool) -> None:
    options = [option for option, wanted in (("--wait", wait), ("--test-only", test_only)) if wanted]
    made: list[Path] = []  # innermost first
    try:
        for path in () if test_only else (*reversed(Path(folder).parents), Path(folder)):
            with contextlib.suppress(FileExistsError):  # SLURM does not create the folder of its log
                path.mkdir()
                made.insert(0, path)
        status, output = submission.submit(script, options)
    except (OSError, submission.SubmissionError) as error:
        for path in made:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        raise click.ClickException(str(error)) from error
    if output:
        click.echo(output, err=not test_only)
    if status:
        click.echo(f"the job ended with status {status}", err=True)
        sys.exit(status)
