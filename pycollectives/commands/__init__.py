"""The command line: one file per sub-command."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def readable(*kinds: type[Exception]) -> Iterator[None]:
    """If an error of these kinds occurs (by default `ValueError`), end the command with its text, not a traceback."""
    expected = kinds or (ValueError,)
    try:
        yield
    except expected as error:
        raise click.ClickException(str(error)) from error


def print_table(head: Iterable[str], rows: Iterable[Iterable[str]], *, width: int | None = None) -> None:
    """Print a table without ruled lines."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=width).print(table)
