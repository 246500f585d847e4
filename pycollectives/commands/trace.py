"""The commands `python -m pycollectives trace ...`: work on traces."""

from __future__ import annotations

from pathlib import Path

import click

from ..diagnostics import traces

__all__ = ["trace"]


@click.group()
def trace() -> None:
    """Work on traces written with PYC_TRACE."""


@trace.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path))
def merge(files: tuple[Path, ...], out: Path) -> None:
    """Join the traces of all ranks into one file for chrome://tracing or ui.perfetto.dev."""
    try:
        events = traces.merge(files, out)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: {events} events of {len(files)} ranks")
