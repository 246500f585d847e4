"""The command line of training: `mpirun -n 8 python -m pycollectives train eager,policy=majority`."""

from __future__ import annotations

import io
import json
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import MismatchError, RankFailedError, StallError, TransportError
from . import settings as settings_
from .datasets import DATASETS
from .models import MODELS
from .optimizers import OPTIMIZERS
from .schedules import SCHEDULES
from .signals import Signals

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["train"]


def _names(registry: Any) -> str:
    return ", ".join(registry.names)


CHOICES = {
    "model": f"One of {_names(MODELS)}.",
    "data": f"One of {_names(DATASETS)}.",
    "optimizer": f"One of {_names(OPTIMIZERS)}, e.g. sgd,rate=0.1,momentum=0.9.",
    "schedule": f"Of the learning rate: one of {_names(SCHEDULES)}, e.g. milestones,at=80:120.",
    "load": "Injected: see pycollectives.loads, e.g. one-late,work_ms=195,skew_ms=300. With work_ms, computing is "
    "emulated: after the forward pass a rank sleeps until the load's time since the step began is over.",
}

DEFAULTS = settings_.Settings()

EXTRAS = {"torch": "torch", "sklearn": "train"}
"""Which extra of this package a module comes with."""

READABLE = (ImportError, MemoryError, OSError, ValueError, MismatchError, RankFailedError, StallError, TransportError)
"""What goes wrong without a defect of this package: a line says it, a traceback would hide it."""

PATIENCE_S = 3.0
"""For the other ranks to fail as well, before a rank that has failed ends the job."""


class _Command(click.Command):
    """What is wrong with the options is said by one rank; the methods are named when help is asked for."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **extra)
        except click.UsageError as error:
            from mpi4py import MPI

            _say_failed(MPI.COMM_WORLD.Dup(), error)
            raise SystemExit(error.exit_code) from error

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from .synchronizers import METHODS  # brings MPI up

        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"METHOD is one of {_names(METHODS)}; by default {DEFAULTS.method}.")


def _choices(command: Any) -> Any:
    for name, text in reversed(CHOICES.items()):
        default = str(getattr(DEFAULTS, name))
        command = click.option(f"--{name}", metavar="NAME[,KEY=VALUE...]", show_default=default, help=text)(command)
    return command


@click.command(cls=_Command)
@click.argument("method", required=False)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with METHOD and the options up to --output as keys; options given here go first.",
)
@_choices
@click.option(
    "--batch",
    type=int,
    show_default=f"{settings_.DEFAULT_BATCH}, or the next multiple",
    help="Examples of all ranks together in a step: a multiple of their number.",
)
@click.option("--epochs", type=float, show_default=str(DEFAULTS.epochs), help="Passes over the data.")
@click.option(
    "--settle-epochs",
    type=float,
    show_default="only at the end",
    help="Epochs between two times that all replicas are made equal and a checkpoint is written.",
)
@click.option(
    "--seed",
    type=int,
    show_default=str(DEFAULTS.seed),
    help="Of the data, the order of examples, the first weights, the load, and the method if it has one.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    show_default="nothing is written",
    help="For metrics (JSON lines per rank), summary.json and the checkpoint; shared by all ranks.",
)
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in the output folder if there is one.")
@click.option("--ranks", type=click.IntRange(1), help="Fail if the communicator has another size.")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks that share a virtual node.")
def train(config: Path | None, resume: bool, ranks: int | None, ranks_per_node: int | None, **said: Any) -> None:
    """Train with METHOD, a name and its options.

    mpirun -n 8 python -m pycollectives train eager,policy=majority,missed=sum --output run

    SIGUSR1 or SIGTERM on any rank ends it on all, with a checkpoint and exit code 75, on which a job script requeues.
    """
    signals = Signals()  # first: a job may be told to end while it begins
    from mpi4py import MPI

    failures = MPI.COMM_WORLD.Dup()
    try:
        if ranks is not None and failures.size != ranks:
            library = MPI.get_vendor()[0]
            raise ValueError(f"expected {ranks} ranks, got {failures.size}: did the launcher of {library} start it?")
        given = {key: value for key, value in said.items() if value is not None}
        settings = settings_.Settings.read(config, given)
        if resume and settings.output is None:
            raise ValueError("--resume needs --output: that is where the checkpoint is")
        code = _run(settings, MPI.COMM_WORLD, signals, resume, ranks_per_node)
    except (Exception, KeyboardInterrupt) as error:
        _say_failed(failures, error)
        code = 1
    signals.ignore()
    raise SystemExit(code)


def _run(
    settings: settings_.Settings, world: MPI.Intracomm, signals: Signals, resume: bool, ranks_per_node: int | None
) -> int:
    from .. import Communicator
    from . import job

    with Communicator(world, ranks_per_node=ranks_per_node) as comm:
        summary = job.run(settings, comm, is_signalled=signals, resume=resume, show=True)
    if not summary.finished:
        if world.rank == 0:
            click.echo(_how_to_go_on(settings), err=True)
            try:
                _report(settings, summary)
            except OSError as error:  # the checkpoint is good all the same
                click.echo(f"Error: {error}", err=True)
        return settings_.REQUEUE if settings.output is not None else 1
    if world.rank == 0:
        _report(settings, summary)
        if not summary.same_everywhere:
            click.echo("Error: the replicas are different; at the end they should be equal", err=True)
    return 0 if summary.same_everywhere else 1


def _how_to_go_on(settings: settings_.Settings) -> str:
    from . import checkpoint

    if settings.output is None:
        return "Stopped; without --output no checkpoint was written."
    folder = settings.output / "checkpoint"
    folder /= checkpoint.newest(folder)
    step = int(folder.name.removeprefix("step-").partition(".")[0])
    return f"Stopped at step {step}, checkpoint in {folder}; --resume goes on."


def _say_failed(failures: MPI.Intracomm, error: BaseException) -> None:
    """Say why this rank cannot go on. If others can, they may wait for it for ever: then it ends the job.

    What all ranks have found out is said once.
    """
    text = _text_of(error)
    all_failed = failures.Ibarrier()
    deadline = time.monotonic() + PATIENCE_S
    while not all_failed.Test():
        if time.monotonic() > deadline:
            click.echo(f"Rank {failures.rank}: {text}", err=True)
            sys.stderr.flush()
            failures.Abort(1)
        time.sleep(0.01)
    texts = failures.gather(text)
    for one in dict.fromkeys(texts or ()):
        click.echo(one, err=True)


def _text_of(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        usage = io.StringIO()
        error.show(usage)
        return usage.getvalue().rstrip()
    if isinstance(error, KeyboardInterrupt):
        return "Error: interrupted; it is SIGUSR1 or SIGTERM that ends a training with a checkpoint"
    if not isinstance(error, READABLE):
        return "".join(traceback.format_exception(error))
    extra = EXTRAS.get(getattr(error, "name", None) or "")
    return f"Error: {error}" + (f": pip install 'pycollectives[{extra}]'" if extra else "")


def _report(settings: settings_.Settings, summary: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    if settings.output is not None:
        text = json.dumps({"settings": settings.as_json(), **summary.as_json()}, indent=1)
        (settings.output / "summary.json").write_text(text + "\n", encoding="utf-8")
    last = summary.curve[-1]
    table = Table(show_header=False, box=None)
    for name, value in (
        ("method", str(settings.method)),
        ("state", "finished" if summary.finished else "stopped, to be resumed"),
        ("batch", f"{summary.batch} examples, {summary.batch // summary.ranks} per rank"),
        ("epochs", f"{last.epoch:g}"),
        ("validation loss", f"{last.loss:.6g}"),
        ("validation accuracy", "-" if last.accuracy is None else f"{100 * last.accuracy:.2f} %"),
        ("steps/s", f"{summary.steps_per_s:.3f}"),
        ("waiting", f"{100 * summary.wait_fraction:.1f} % of the time"),
        ("active ranks", f"{summary.active:.2f} of {summary.ranks}"),
        ("late", f"{100 * summary.late:.1f} % of the steps"),
        ("missed rounds", f"{summary.missed:.2f} per step"),
        ("replicas", "equal" if summary.same_everywhere else "DIFFERENT"),
        ("load", f"{settings.load}" + (", emulated by sleeping" if settings.load.options.get("work") else "")),
    ):
        table.add_row(name, value)
    Console().print(table)
