"""The output of `tune` on rank 0: its progress on stderr, and tables of measurements and choices."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from .derivation import Cell, Decision, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.table import Table

    from ..selection.choice import Choice, Row, SelectionTable
    from .measuring import Measured

WIDTH = 120


@contextlib.contextmanager
def progress(seconds: float) -> Iterator[Callable[[int, int, int], None]]:
    """Yield the callback for each cell, which draws a bar on a terminal, or prints a line per pass to a file.

    The bar is drawn only in the callback, without a thread, so that drawing never runs in a timed region.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False)
    begin = time.perf_counter()
    if not console.is_terminal:

        def line(number: int, done: int, cells: int) -> None:
            if done == cells:
                elapsed = time.perf_counter() - begin
                console.print(
                    f"pass {number + 1}: {cells} cells; {elapsed:.0f} of at most {seconds:g} s", soft_wrap=True
                )

        yield line
        return
    with Progress(console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("pass 1", total=None)

        def draw(number: int, done: int, cells: int) -> None:
            bar.update(task, description=f"pass {number + 1}", total=cells, completed=done, refresh=True)

        yield draw


def console() -> Console:
    """Return a console that is wide enough for the tables: launchers do not report how wide the terminal is."""
    from rich.console import Console

    return Console(width=max(WIDTH, Console().width), highlight=False)


def measured_table(measured: Measured, default: SelectionTable) -> Table:
    """Return a table of the medians in microseconds, and of each cell's choice."""
    from rich.table import Table

    flat = sorted({choice.name for cell in measured.cells for choice in cell.seconds if not choice.board})
    any_board = any(choice.board for cell in measured.cells for choice in cell.seconds)
    columns = [*(["board"] if any_board else []), *flat]
    table = Table("ranks", "rounds", "bytes", title="Latency in us: median over passes of the mean over ranks")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("chosen")
    ranks = None
    for cell in sorted(measured.cells, key=lambda cell: (cell.ranks, cell.sparse, cell.nbytes)):
        if ranks not in (None, cell.ranks):
            table.add_section()
        ranks = cell.ranks
        decision = decide(cell, default)
        medians = [f"{_least(cell, column):.1f}" for column in columns]
        kind = "sparse" if cell.sparse else "balanced"
        table.add_row(str(cell.ranks), kind, size(cell.nbytes), *medians, _chosen(decision))
    return table


def _least(cell: Cell, name: str) -> float:
    return min((cell.median(choice) for choice in cell.seconds if choice.name == name), default=float("nan")) * 1e6


def _chosen(decision: Decision) -> str:
    def described(choice: Choice) -> str:
        return f"{choice.name}, {size(choice.segment_bytes)} segments" if choice.segment_bytes else choice.name

    if decision.chosen == decision.default:
        return decision.default.name
    return f"[bold]{described(decision.chosen)}[/], not {described(decision.default)}"


def selection_table(table: SelectionTable) -> Table:
    """Return a table for the console with the rows of a selection table."""
    from rich.table import Table

    shown = Table(
        "question", "ranks", "bytes", "contributors", "answer", title='algorithm="auto": the first row that holds'
    )
    for question, rows in (
        ("board within a node", table.board),
        ("schedule of messages", table.schedule),
        ("segment of a board", table.segment_bytes),
    ):
        shown.add_section()
        for row in rows:
            shown.add_row(
                question + {"ranks": ", no board", "nodes": ", between boards"}.get(row.among or "", ""),
                _limits(row.min_ranks, row.max_ranks),
                _limits(row.min_bytes, row.max_bytes),
                {None: "any", True: "few", False: "most"}[row.sparse],
                _answer(row),
            )
            question = ""
    return shown


def _answer(row: Row[bool] | Row[str] | Row[int]) -> str:
    if isinstance(row.answer, bool):
        return "board" if row.answer else "none"
    return row.answer if isinstance(row.answer, str) else size(row.answer)


def _limits(low: int | None, high: int | None) -> str:
    if low is None:
        return "any" if high is None else f"<= {high}"
    return f">= {low}" if high is None else f"{low} - {high}" if low != high else str(low)


def size(nbytes: int) -> str:
    """Return a number of bytes as text, in the largest unit without a fraction.

    >>> size(8), size(262144), size(1000)
    ('8 B', '256 KiB', '1000 B')
    """
    for power, unit in ((2, "MiB"), (1, "KiB")):
        if nbytes and nbytes % 1024**power == 0:
            return f"{nbytes // 1024**power} {unit}"
    return f"{nbytes} B"
