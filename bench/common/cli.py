"""The command line of a benchmark: shared options, and a launcher of one program on all ranks of MPI.COMM_WORLD."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import numpy as np

from .errors import RunError
from .policies import PolicyName
from .warmup import MOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pycollectives.support.typing import Late

DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")  # types that MPI can reduce too

Command = TypeVar("Command", bound=Callable[..., Any])


def parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return the callback of an option that `parse` reads; its ValueError becomes the usage error."""

    def callback(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _policies(text: str) -> list[PolicyName]:
    return [PolicyName.parse(name) for name in text.split(",")]


def parse_sizes(text: str) -> list[int]:
    sizes = [size.strip() for size in text.split(",")]
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ValueError(f"expected positive numbers separated by commas, got {text!r}")
    return [int(size) for size in sizes]


def _ranks_per_node(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isdecimal() and int(text) > 0):
        raise ValueError(f"expected a positive number or 'all', got {text!r}")
    return int(text)


def _warmup(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal():
        raise ValueError(f"expected a number of iterations or 'auto', got {text!r}")
    return int(text)


@dataclass(frozen=True)
class Alone:
    """Options of a benchmark of one process, without MPI."""

    json: Path | None
    iterations: int
    seed: int
    verify: bool
    list_only: bool


@dataclass(frozen=True)
class Common(Alone):
    """Options of every benchmark of several ranks."""

    ranks_per_node: int | None  # None: the ranks of the machine


@dataclass(frozen=True)
class Sweep(Common):
    """Options of the benchmarks that measure policies over message sizes."""

    policy: list[PolicyName] | None
    bytes: list[int]
    dtype: np.dtype[Any]
    device: str
    algorithm: str
    activation: str
    late: Late
    on_failure: Literal["raise", "continue"]
    baseline: bool
    warmup: int | None  # None: until calls stop getting faster

    @property
    def longest_warmup(self) -> int:
        return MOST if self.warmup is None else self.warmup

    def policies(self, ranks: int, default: str) -> list[PolicyName]:
        """Return the policies to measure. In `default`, 'quorum' without a number stands for half of the ranks."""
        names = self.policy
        if names is None:
            half = f"quorum:{max(1, ranks // 2)}"
            names = [PolicyName.parse(half if text == "quorum" else text) for text in default.split(",")]
        try:
            for name in names:
                name.require(ranks)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        for size in self.bytes:
            if size % self.dtype.itemsize:
                raise click.UsageError(f"{size} bytes are no whole number of {self.dtype} elements")
        return names


def alone_options(*, iterations: int) -> Callable[[Command], Callable[..., Any]]:
    """Add the options of `Alone`; the command gets them as its first argument."""
    return _collect(Alone, _alone(iterations))


def common_options(*, iterations: int) -> Callable[[Command], Callable[..., Any]]:
    """Add the options of `Common`; the command gets them as its first argument."""
    return _collect(Common, _common(iterations))


def sweep_options(*, iterations: int, sizes: str, policies: str, late: Late) -> Callable[[Command], Callable[..., Any]]:
    """Add the options of `Sweep`; the command gets them as its first argument."""
    return _collect(
        Sweep,
        [
            *_common(iterations),
            click.option(
                "--policy",
                callback=parsed(_policies),
                metavar="LIST",
                help="solo, majority, quorum:K, any-of:M, all-of:M, full, separated by commas. "
                f"[default: {policies}, K half of the ranks]",
            ),
            click.option("--bytes", callback=parsed(parse_sizes), metavar="LIST", default=sizes, show_default=True),
            click.option(
                "--dtype",
                type=click.Choice(DTYPES),
                default="float32",
                show_default=True,
                callback=lambda context, option, value: np.dtype(value),
            ),
            device_option,
            click.option("--algorithm", default="auto", show_default=True, help="The library's allreduce schedule."),
            click.option(
                "--activation",
                default="auto",
                show_default=True,
                help="How messages start a round: dissemination, tree, tree:K.",
            ),
            click.option(
                "--late",
                type=click.Choice(["accumulate", "replace", "drop"]),
                default=late,
                show_default=True,
                help="How the library treats late data.",
            ),
            click.option(
                "--on-failure",
                type=click.Choice(["raise", "continue"]),
                default="raise",
                show_default=True,
                help="`on_failure` of the communicator. No rank dies here.",
            ),
            click.option("--baseline/--no-baseline", default=True, help="Measure MPI too."),
            click.option(
                "--warmup",
                callback=parsed(_warmup),
                metavar="N|auto",
                default="auto",
                show_default=True,
                help="Uncounted iterations before each block of counted ones. auto: until they stop getting faster, "
                f"{MOST} at most.",
            ),
        ],
    )


device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Place of the arrays. cuda: the ranks of a node take its devices in rotation.",
)


def _alone(iterations: int) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            "--json",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Also write JSON lines to this file, for `bench plot`.",
        ),
        click.option("--iterations", type=click.IntRange(min=1), default=iterations, show_default=True),
        click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True),
        click.option("--verify/--no-verify", default=True, help="Check every result, outside the timed region."),
        click.option("--list", "list_only", is_flag=True, help="List the cells without measuring them."),
    ]


def _common(iterations: int) -> list[Callable[[Any], Any]]:
    return [
        *_alone(iterations),
        click.option(
            "--ranks-per-node",
            callback=parsed(_ranks_per_node),
            metavar="K|all",
            default="all",
            show_default=True,
            help="Ranks that share a node's memory; 1 sends everything over MPI.",
        ),
    ]


def _collect(into: type[Alone], options: list[Callable[[Any], Any]]) -> Callable[[Command], Callable[..., Any]]:
    names = [field.name for field in fields(into)]

    def decorate(command: Command) -> Callable[..., Any]:
        @functools.wraps(command)
        def collected(**arguments: Any) -> Any:
            common = into(**{name: arguments.pop(name) for name in names})
            return command(common, **arguments)

        decorated: Callable[..., Any] = collected
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


# Variables that launchers set, innermost launcher first: mpirun inside a SLURM job counts, the job does not.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)


def launcher_mismatch(environment: Mapping[str, str], size: int) -> tuple[str, int] | None:
    """Return (error text, rank of this process) if the launcher started another number of ranks than MPI sees."""
    for size_name, rank_name in LAUNCHERS:
        announced = environment.get(size_name, "")
        if announced.isdecimal():
            if int(announced) == size:
                return None
            rank = environment.get(rank_name, "0")
            text = (
                f"{size_name}={announced}, but MPI.COMM_WORLD has {size} rank(s): "
                "the launcher does not belong to the MPI library that mpi4py uses"
            )
            return text, int(rank) if rank.isdecimal() else 0
    return None


def launch(command: click.Command, arguments: Sequence[str] | None = None) -> None:
    """Run a command on all ranks. Rank 0 prints; wrong use exits with code 2; an unexpected error aborts all ranks."""
    from mpi4py import MPI  # starts MPI; parsing the command line does not need it

    comm = MPI.COMM_WORLD
    mismatch = launcher_mismatch(os.environ, comm.size)
    if mismatch is not None:
        text, rank = mismatch
        if rank == 0:
            print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    with contextlib.ExitStack() as stack:
        if comm.rank != 0:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        try:
            command.main(args=arguments, standalone_mode=False)
        except click.ClickException as error:  # raised on every rank, since the arguments are the same
            if comm.rank == 0:
                error.show()
            sys.exit(2)
        except RunError as error:
            if comm.rank == 0:
                print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            comm.Abort(1)
