"""The command line of training: `mpirun -n 8 python -m pycollectives train eager,policy=majority`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..train import failing
from ..train import settings as settings_
from ..train.datasets import DATASETS
from ..train.models import MODELS
from ..train.optimizers import OPTIMIZERS
from ..train.schedules import SCHEDULES
from ..train.signals import Signals

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..train.job import OnFailure


def _names(registry: Any) -> str:
    return ", ".join(registry.names)


CHOICES = {
    "model": f"One of {_names(MODELS)}.",
    "data": f"One of {_names(DATASETS)}.",
    "optimizer": f"One of {_names(OPTIMIZERS)}, e.g. sgd,rate=0.1,momentum=0.9. lr is another name for rate.",
    "schedule": f"Schedule of the learning rate: one of {_names(SCHEDULES)}, e.g. milestones,at=80:120.",
    "load": "Injected delays: see pycollectives.simulation.workload, e.g. one-late,work_ms=195,skew_ms=300. With "
    "work_ms, computing is emulated: after the forward pass, a rank sleeps until the end of the load's time.",
}

DEFAULTS = settings_.Settings()


class _Command(click.Command):
    """A command whose usage errors are printed by one rank, and whose help lists the methods."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **extra)
        except click.UsageError as error:
            from mpi4py import MPI

            failing.explain(MPI.COMM_WORLD.Dup(), error)
            raise SystemExit(error.exit_code) from error

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..train.synchronizers import METHODS  # initializes MPI

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
    help="TOML file with METHOD and the options up to --output as keys. The command line overrides it.",
)
@_choices
@click.option(
    "--batch",
    type=int,
    show_default=f"{settings_.DEFAULT_BATCH}, or the next multiple",
    help="Examples per step of all ranks together: a multiple of the number of ranks.",
)
@click.option("--epochs", type=float, show_default=str(DEFAULTS.epochs), help="Passes over the data.")
@click.option("--seconds", type=float, help="Time after which training ends, even if passes are left.")
@click.option(
    "--settle-epochs",
    type=float,
    show_default="only at the end",
    help="Epochs after which all replicas are made equal and a checkpoint is written.",
)
@click.option(
    "--by-speed",
    is_flag=True,
    default=None,
    help="Ranks take batches from one counter, so that fast ranks take more and all end together.",
)
@click.option(
    "--seed",
    type=int,
    show_default=str(DEFAULTS.seed),
    help="Seed of the data, the order of examples, the initial weights, the load, and the method if it is random.",
)
@click.option(
    "--device",
    metavar="cpu|cuda|cuda:N",
    show_default=DEFAULTS.device,
    help="Device of PyTorch models. cuda: the ranks of a machine use its devices in rotation.",
)
@click.option(
    "--output",
    "-o",
    metavar="FOLDER",
    show_default="nothing is written",
    help="Folder for metrics (JSON lines per rank), summary.json and the checkpoint; shared by all ranks.",
)
@click.option(
    "--on-failure",
    type=click.Choice(["raise", "continue"]),
    default="raise",
    show_default=True,
    help="Effect of a rank's death. raise: all ranks end. continue: others continue (needs mpirun --with-ft ulfm).",
)
@click.option(
    "--at-least",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --on-failure continue: if fewer ranks are alive, write a checkpoint and exit with 75, as after SIGUSR1.",
)
@click.option("--resume", is_flag=True, help="Continue from the checkpoint in the output folder, if there is one.")
@click.option("--ranks", type=click.IntRange(1), help="Fail if the job has another number of ranks.")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks that share a virtual node.")
@click.option("--allow-not-finite", is_flag=True, help="Exit with 0 even if the validation loss is not finite.")
def train(
    config: Path | None,
    resume: bool,
    ranks: int | None,
    ranks_per_node: int | None,
    allow_not_finite: bool,
    on_failure: OnFailure,
    at_least: int,
    **options: Any,
) -> None:
    """Train with METHOD: a name and its options.

    mpirun -n 8 python -m pycollectives train eager,policy=majority,missed=sum --output run

    SIGUSR1 or SIGTERM on any rank stops all ranks with a checkpoint and exit code 75, so that a job script can requeue.
    """
    signals = Signals()  # first, since the signal may arrive while the job starts
    from mpi4py import MPI

    failures = MPI.COMM_WORLD.Dup()
    try:
        if ranks is not None and failures.size != ranks:
            library = MPI.get_vendor()[0]
            raise ValueError(f"expected {ranks} ranks, got {failures.size}: use the launcher of {library}")
        given = {key: value for key, value in options.items() if value is not None}
        settings = settings_.Settings.read(config, given)
        if resume and settings.output is None:
            raise ValueError("--resume needs --output, the folder with the checkpoint")
        code = _run(settings, MPI.COMM_WORLD, signals, resume, ranks_per_node, allow_not_finite, on_failure, at_least)
    except (Exception, KeyboardInterrupt) as error:
        failing.explain(failures, error)
        code = 1
    signals.ignore()
    raise SystemExit(code)


def _run(
    settings: settings_.Settings,
    world: MPI.Intracomm,
    signals: Signals,
    resume: bool,
    ranks_per_node: int | None,
    allow_not_finite: bool,
    on_failure: OnFailure,
    at_least: int,
) -> int:
    from .. import Communicator
    from ..train import job
    from ..train.summary import report

    own = world if on_failure == "raise" else world.Dup()  # it may be revoked
    with Communicator(own, ranks_per_node=ranks_per_node) as comm:
        summary = job.run(
            settings,
            comm,
            is_signalled=signals,
            resume=resume,
            show=True,
            on_failure=on_failure,
            at_least=at_least,
        )
    reports = world.rank == min({*range(world.size)} - {*summary.lost})
    if not summary.finished:
        if reports:
            click.echo(_how_to_go_on(settings), err=True)
            try:
                report(settings, summary)
            except OSError as error:  # the checkpoint is valid anyway
                click.echo(f"Error: {error}", err=True)
        return settings_.REQUEUE if settings.output is not None else 1
    errors = []
    if not summary.is_same_on_all_ranks:
        errors.append("the replicas are different; at the end they should be equal")
    if not math.isfinite(summary.curve[-1].loss) and not allow_not_finite:
        errors.append("the validation loss is not finite; to allow this, pass --allow-not-finite")
    if reports:
        report(settings, summary)
        for text in errors:
            click.echo(f"Error: {text}", err=True)
    return 1 if errors else 0


def _how_to_go_on(settings: settings_.Settings) -> str:
    from ..train import checkpoint

    if settings.output is None:
        return "Stopped; without --output no checkpoint was written."
    folder = settings.output / "checkpoint"
    folder /= checkpoint.newest(folder)
    step = int(folder.name.removeprefix("step-").partition(".")[0])
    return f"Stopped at step {step}, checkpoint in {folder}; --resume continues."
