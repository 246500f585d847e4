"""The commands `python -m pycollectives trace merge | draw`."""

from __future__ import annotations

from pathlib import Path

import click

from ..diagnostics import timeline, traces
from ..support.extras import how_to_install
from . import readable


@click.group()
def trace() -> None:
    """Merge or draw traces written with PYC_TRACE."""


@trace.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", "-o", "out", required=True, type=click.Path(dir_okay=False, path_type=Path))
def merge(files: tuple[Path, ...], out: Path) -> None:
    """Join the traces of all ranks into one file for chrome://tracing or ui.perfetto.dev."""
    with readable():
        events = traces.merge(files, out)
    click.echo(f"{out}: {events} events of {len(files)} ranks")


def _rounds(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    first, _, last = value.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise click.BadParameter(f"expected two rounds like 3:8, got {value!r}", context, option)
    return int(first), int(last)


@trace.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output", "-o", "out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Image file."
)
@click.option("--rounds", callback=_rounds, metavar="FIRST:LAST", help="Rounds to draw.  [default: all]")
@click.option("--title", default="")
def draw(files: tuple[Path, ...], out: Path, rounds: tuple[int, int] | None, title: str) -> None:
    """Draw a timeline with a row for each rank, from the traces of all ranks or from a merged trace."""
    try:
        with readable(OSError, ValueError):
            events = traces.read_run(files)
            timeline.draw(timeline.select(events, rounds) if rounds else events, out, title)
    except ImportError:
        raise click.ClickException(f"figures need matplotlib: {how_to_install('bench')}") from None
    click.echo(f"{out}: {len(timeline.spans(events))} spans of {len({event['pid'] for event in events})} ranks")
