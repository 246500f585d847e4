"""Tables in the manner of the OSU micro-benchmarks: '#' lines, first column to the left, others to the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_WIDTH = 10
WIDTH = 18


@dataclass(frozen=True)
class Column:
    name: str
    precision: int = 2

    @property
    def width(self) -> int:
        return max(WIDTH, len(self.name) + 2)

    def cell(self, value: float | str | None) -> str:
        if value is None:
            return "-"
        return str(value) if isinstance(value, int | str) else f"{value:.{self.precision}f}"


@dataclass(frozen=True)
class Table:
    title: str
    notes: Sequence[str]
    columns: Sequence[Column]
    first_width: int = FIRST_WIDTH

    def head(self) -> str:
        first, *rest = self.columns
        names = f"# {first.name}".ljust(self.first_width)
        names += "".join(column.name.rjust(column.width) for column in rest)
        return "\n".join(f"# {line}" for line in [self.title, *self.notes]) + "\n" + names

    def row(self, values: Sequence[float | str | None]) -> str:
        """None prints as '-'."""
        (first, value), *rest = zip(self.columns, values, strict=True)
        return first.cell(value).ljust(self.first_width) + "".join(
            column.cell(value).rjust(column.width) for column, value in rest
        )
