"""Which algorithm `algorithm="auto"` means, from a table that a benchmark produced.

The table, `data/selection.json`, has for each collective a list of rows. The first row whose limits hold for a call is
taken, so the order matters and the last row has no limit:

- `max_ranks`: taken up to this number of ranks, inclusive; absent: any number.
- `max_bytes`: taken up to this many bytes of one rank's data (count times the size of an element), inclusive; absent:
  any size.
- `sparse`: true: taken only where few ranks contribute to a round, so that most blocks are absent.
- `algorithm`: a name that the engine knows.

`source` says where the numbers come from.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from .policies import Policy, Solo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BOARD", "Row", "SelectionTable", "built_in_table", "is_sparse", "resolve"]

FORMAT = 1

BOARD = "board"
"""The algorithm of ranks that share a machine: in shared memory, without messages."""


@dataclass(frozen=True)
class Row:
    """One line of the table: an algorithm and the limits, inclusive, up to which it is taken."""

    algorithm: str
    max_ranks: int | None = None
    max_bytes: int | None = None
    sparse: bool = False

    def holds(self, ranks: int, nbytes: int, *, sparse: bool) -> bool:
        """Whether this row serves `ranks` ranks with `nbytes` bytes each, few of which contribute if `sparse`."""
        return (
            (self.max_ranks is None or ranks <= self.max_ranks)
            and (self.max_bytes is None or nbytes <= self.max_bytes)
            and (sparse or not self.sparse)
        )


@dataclass(frozen=True)
class SelectionTable:
    """The rows for an allreduce, and where they come from.

    >>> table = SelectionTable((Row("recursive_doubling", max_bytes=1024), Row("ring")), source="an example")
    >>> table.choose(ranks=8, nbytes=4096)
    'ring'
    """

    rows: tuple[Row, ...]
    source: str

    def __post_init__(self) -> None:
        """Refuse a table that has no answer for some call."""
        if not self.rows or self.rows[-1] != Row(self.rows[-1].algorithm):
            raise ValueError("selection table: the last row must have no limits, or some calls would have no algorithm")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SelectionTable:
        """Read the format described above; `ValueError` for anything else."""
        if document.get("format") != FORMAT:
            raise ValueError(f"selection table: expected format {FORMAT}, got {document.get('format')!r}")
        try:
            rows = tuple(Row(**row) for row in document["allreduce"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"selection table: not understood: {error}") from error
        return cls(rows, document.get("source", ""))

    def choose(self, ranks: int, nbytes: int, *, sparse: bool = False) -> str:
        """Return the name of the algorithm for `ranks` ranks with `nbytes` bytes each."""
        return next(row.algorithm for row in self.rows if row.holds(ranks, nbytes, sparse=sparse))


@functools.cache
def built_in_table() -> SelectionTable:
    """Return the table that comes with the package."""
    text = resources.files(__package__).joinpath("data", "selection.json").read_text()
    return SelectionTable.from_json(json.loads(text))


def is_sparse(policy: Policy, late: str, max_staleness: int | None = None) -> bool:
    """Whether few ranks contribute to a round: the first comes alone, and who comes late contributes nothing."""
    return isinstance(policy, Solo) and late == "drop" and max_staleness is None


def resolve(
    algorithm: str, ranks: int, nbytes: int, known: Sequence[str], *, sparse: bool = False, on_board: bool = False
) -> str:
    """Return the name of the algorithm to run.

    Parameters
    ----------
    algorithm
        "auto" or one of `known`.
    ranks, nbytes
        The number of ranks, and the bytes of one rank's data.
    known
        The algorithms that the engine has.
    sparse
        Whether few ranks contribute to a round.
    on_board
        Whether all ranks share a machine.

    Raises
    ------
    ValueError
        If the engine does not have it.
    """
    if algorithm == "auto" and on_board:
        return BOARD
    name = built_in_table().choose(ranks, nbytes, sparse=sparse) if algorithm == "auto" else algorithm
    if name not in known:
        raise ValueError(f"algorithm: expected 'auto' or one of {', '.join(sorted(known))}; got {name!r}")
    return name
