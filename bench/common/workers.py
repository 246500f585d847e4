"""Options and settings of the benchmarks whose workers compute (emulated by sleeping) and average models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .cli import parsed
from .output import verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from .output import Domain, Record

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

ITEM = 4  # bytes of a float32


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The common setting of a table's cells."""

    ranks: int
    domain: Domain
    bytes: int
    compute: float  # seconds
    iterations: int
    seed: int
    verify: bool

    def keys(self) -> Record:
        """Return the keys of every record."""
        return {
            "path": self.domain.path,
            "ranks": self.ranks,
            "ranks_per_node": self.domain.ranks_per_node,
            "bytes": self.bytes,
            "model_bytes": self.bytes,
            "dtype": "float32",
            "seed": self.seed,
            "iterations": self.iterations,
        }

    def verified(self, what: str = "results") -> str:
        return verified(what, self.verify)


def bytes_of_model(text: str) -> int:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not (ITEM <= size < 1e15 and size % ITEM == 0):
        raise ValueError(f"expected positive multiples of {ITEM}, got {text!r}")
    return int(size)


def compute_option(default: float) -> Decorator:
    return click.option(
        "--compute-ms",
        type=click.FloatRange(min=0, min_open=True),
        default=default,
        show_default=True,
        help="Emulated computing time of an iteration.",
    )


def model_bytes_option(default: str, of: str) -> Decorator:
    return click.option(
        "--model-bytes",
        callback=parsed(bytes_of_model),
        metavar="BYTES",
        default=default,
        show_default=True,
        help=f"Size of the float32 {of}.",
    )


warmup_option = click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Warm-up time, in iterations of a worker that never waits. It is not counted.",
)
