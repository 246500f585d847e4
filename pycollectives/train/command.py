"""The command line of training: `mpirun -n 8 python -m pycollectives train eager,policy=majority`."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import MismatchError, RankFailedError, StallError, TransportError
from . import settings as settings_
from .signals import Signals

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["train"]

CHOICES = {
    "model": "hyperplane, mlp; with PyTorch: cnn, resnet32, vgg16, lstm.",
    "data": "hyperplane, digits, cifar10, sequences.",
    "optimizer": "sgd or adam, e.g. sgd,rate=0.1,momentum=0.9.",
    "schedule": "Of the learning rate: constant, milestones,at=80:120, warmup,epochs=5 or cosine,epochs=90.",
    "load": "Injected: see pycollectives.loads, e.g. one-late,work_ms=195,skew_ms=300. With work_ms, computing is "
    "emulated by sleeping until a step has taken as long as the load says.",
}


EXTRAS = {"torch": "torch", "sklearn": "train"}
"""Which extra of this package a module comes with."""

READABLE = (ImportError, OSError, ValueError, MismatchError, RankFailedError, StallError, TransportError)
"""What goes wrong without a defect of this package: a line says it, a traceback would hide it."""

PATIENCE_S = 3.0
"""For the other ranks to fail as well, before a rank that has failed ends the job."""


class _Command(click.Command):
    """What is wrong with the options is said by one rank."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **extra)
        except click.UsageError as error:
            from mpi4py import MPI

            if MPI.COMM_WORLD.rank != 0:
                raise SystemExit(error.exit_code) from error
            raise


def _choices(command: Any) -> Any:
    for name, text in reversed(CHOICES.items()):
        command = click.option(f"--{name}", metavar="NAME[,KEY=VALUE...]", help=text)(command)
    return command


@click.command(cls=_Command)
@click.argument("method", required=False)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with the names of these options as keys; options given here go first.",
)
@_choices
@click.option("--batch", type=int, help="Examples of all ranks together in a step: a multiple of their number.")
@click.option("--epochs", type=float, help="Passes over the data.")
@click.option(
    "--settle-epochs",
    type=float,
    help="Epochs between two times that all replicas are made equal and a checkpoint is written.",
)
@click.option("--seed", type=int)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for metrics (JSON lines per rank), summary.json and the checkpoint.",
)
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in the output folder if there is one.")
@click.option("--ranks", type=click.IntRange(1), help="Fail if the communicator has another size.")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks that share a virtual node.")
def train(config: Path | None, resume: bool, ranks: int | None, ranks_per_node: int | None, **said: Any) -> None:
    """Train with METHOD: synchronous, eager, m-synchronous, ripples or ddp, e.g. eager,policy=quorum:4,missed=sum.

    mpirun -n 8 python -m pycollectives train eager,policy=majority --output run

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
        settings = settings_.Settings.of(settings_.read_toml(config) if config else {}, given)
        if resume and settings.output is None:
            raise ValueError("--resume needs --output: that is where the checkpoint is")
        code = _run(settings, MPI.COMM_WORLD, signals, resume, ranks_per_node)
    except (Exception, KeyboardInterrupt) as error:
        code = _failed(failures, error)
    signals.ignore()
    raise SystemExit(code)


def _run(
    settings: settings_.Settings, world: MPI.Intracomm, signals: Signals, resume: bool, ranks_per_node: int | None
) -> int:
    from .. import Communicator
    from . import job

    with Communicator(world, ranks_per_node=ranks_per_node) as comm:
        summary = job.run(settings, comm, is_signalled=signals, resume=resume, show=True)
    if world.rank == 0:
        _report(settings, summary)
    if summary.finished:
        return 0
    if settings.output is None and world.rank == 0:
        click.echo("Stopped; without --output no checkpoint was written.", err=True)
    return settings_.REQUEUE if settings.output is not None else 1


def _failed(failures: MPI.Intracomm, error: BaseException) -> int:
    """Say why this rank cannot go on. If others can, they may wait for it for ever: then it ends the job.

    What all ranks have found out is said once.
    """
    if isinstance(error, READABLE):
        extra = EXTRAS.get(getattr(error, "name", None) or "")
        text = f"Error: {error}" + (f": pip install 'pycollectives[{extra}]'" if extra else "")
    else:
        text = "".join(traceback.format_exception(error))
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
    return 1


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
