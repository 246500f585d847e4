"""How `algorithm="auto"` chooses from a table of measurements; `selection.model` uses costs instead.

Ranks of a node can work in shared memory, on a *board*. Between nodes, or among all ranks if there is no board, they
exchange messages according to a *schedule*. A table answers three questions, each with the first row that applies to a
call:

| rows | answer | depends on |
|---|---|---|
| `board` | whether the ranks of a node use a board | the ranks of a node, the bytes, whether rounds are sparse |
| `schedule` | the schedule of the messages | the nodes, or the ranks without a board; the bytes; whether sparse |
| `segment_bytes` | the bytes that a rank reduces on a board at a time | as `board` |

A row has its answer under the name of its list, and limits, which are inclusive. A missing limit does not restrict the
row.

- `min_ranks`, `max_ranks`: the number of ranks or nodes that work together, as in the table above.
- `min_bytes`, `max_bytes`: the bytes of one rank's data: count times the size of an element.
- `sparse`: if true, few ranks contribute to a round, so that most blocks are absent; if false, many ranks contribute.
- `among`, for schedules: "ranks" without a board, or "nodes" between boards.

The last row of each list has no limits, so that every call has an answer. A JSON document has `format`, `source` (the
origin of the numbers, as a string), `machine` (`cpu`, `cores`, `mpi`: where the numbers apply), and `allreduce` with
the three lists; `tuning` lists the measurements, for readers. `selection.tables` chooses the table of a process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..policies import Policy, Solo
from ..support.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import CostModel

FORMAT = 2

BOARD = "board"
"""The algorithm for ranks that share a machine: shared memory without messages."""

DEFAULT_SEGMENT_BYTES = 65536
"""Bytes that a rank reduces on a board at a time, by default."""

T = TypeVar("T", bool, str, int)


@dataclass(frozen=True)
class Choice:
    """How ranks exchange data.

    >>> Choice(True, "tree", 65536).name
    'board+tree'
    >>> Choice(True, "tree", 65536).staged_name
    'board+staged tree'
    """

    board: bool  # whether the ranks of a node use a board
    schedule: str | None  # of messages between nodes, or among all ranks without a board; None: no messages
    segment_bytes: int | None = None  # that a rank reduces on the board at a time; None: no board
    activation: str = "tree"  # the schedule of the messages that start a round

    @property
    def name(self) -> str:
        """The algorithm's name, such as "tree", "board+tree", or "board" on a single node."""
        return "+".join(part for part in (BOARD if self.board else None, self.schedule) if part)

    @property
    def staged_name(self) -> str:
        """The name if messages go through host memory, as for arrays on devices: "staged tree"."""
        return "+".join(part for part in (BOARD if self.board else None, f"staged {self.schedule}") if part)


@dataclass(frozen=True)
class Row(Generic[T]):
    """One line of a table: an answer, and the inclusive limits within which the answer applies."""

    answer: T
    min_ranks: int | None = None
    max_ranks: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    sparse: bool | None = None
    among: str | None = None

    def holds(self, ranks: int, nbytes: int, *, sparse: bool, among: str = "ranks") -> bool:
        """Return True if this row applies to `ranks` ranks of `nbytes` bytes each; if `sparse`, few contribute."""
        return (
            (self.min_ranks is None or ranks >= self.min_ranks)
            and (self.max_ranks is None or ranks <= self.max_ranks)
            and (self.min_bytes is None or nbytes >= self.min_bytes)
            and (self.max_bytes is None or nbytes <= self.max_bytes)
            and (self.sparse is None or sparse == self.sparse)
            and (self.among is None or among == self.among)
        )

    def limits(self) -> dict[str, int | bool | str]:
        """Return the limits of this row, by name."""
        return {limit: value for limit in LIMITS if (value := getattr(self, limit)) is not None}


LIMITS: dict[str, type] = {
    "min_ranks": int,
    "max_ranks": int,
    "min_bytes": int,
    "max_bytes": int,
    "sparse": bool,
    "among": str,
}
"""The limits of a row, with their types."""

AMONG = ("ranks", "nodes")


@dataclass(frozen=True)
class SelectionTable:
    """The rows for an allreduce, with the origin of their numbers: see this module.

    >>> table = SelectionTable(schedule=(Row("recursive_doubling", max_bytes=1024), Row("ring")), source="an example")
    >>> table.choose(ranks=8, nodes=8, nbytes=4096).name
    'ring'
    >>> table.choose(ranks=8, nodes=2, nbytes=1024).name
    'board+recursive_doubling'
    """

    schedule: tuple[Row[str], ...]
    board: tuple[Row[bool], ...] = (Row(True),)
    segment_bytes: tuple[Row[int], ...] = (Row(DEFAULT_SEGMENT_BYTES),)
    source: str = ""  # the origin of the numbers
    name: str = "built-in"  # in messages, or the table's file
    machine: Machine | None = None  # the machine to which the numbers apply; None: any

    def __post_init__(self) -> None:
        """Raise `ValueError` if the table has no answer for some calls."""
        for question in QUESTIONS:
            rows = getattr(self, question)
            if not rows or rows[-1].limits():
                raise ValueError(
                    f"allreduce.{question}: the last row must have no limits, otherwise some calls have no answer"
                )

    @classmethod
    def from_json(cls, document: Any, name: str = "built-in") -> SelectionTable:
        """Return the table in a document of this module's format. A `ValueError` names the table and the wrong key."""
        try:
            return cls._from_json(document, name)
        except ValueError as error:
            raise ValueError(f"selection table {name}: {error}") from None

    @classmethod
    def _from_json(cls, document: Any, name: str) -> SelectionTable:
        document = _object(document, "the document")
        _check_keys(document, "", ("format", "source", "machine", "allreduce", "tuning"))
        if document.get("format") != FORMAT:
            raise ValueError(f"format: expected {FORMAT}, got {document.get('format')!r}")
        source = document.get("source", "")
        if not isinstance(source, str):
            raise ValueError(f"source: expected a string, got {source!r}")
        lists = _object(document.get("allreduce"), "allreduce")
        _check_keys(lists, "allreduce.", tuple(QUESTIONS))
        rows = {question: _rows(lists.get(question), question, kind) for question, kind in QUESTIONS.items()}
        return cls(**rows, source=source, name=name, machine=_machine(document.get("machine")))

    def as_json(self) -> dict[str, Any]:
        """Return the document that `from_json` reads."""
        machine = {} if self.machine is None else {"machine": self.machine.as_json()}
        return {"format": FORMAT, "source": self.source, **machine, "allreduce": self._answers()}

    def _answers(self) -> dict[str, list[dict[str, Any]]]:
        return {
            question: [{**row.limits(), question: row.answer} for row in getattr(self, question)]
            for question in QUESTIONS
        }

    @functools.cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that depend only on the table's answers."""
        return hashlib.sha256(json.dumps(self._answers(), sort_keys=True).encode()).hexdigest()[:12]

    def choose(self, ranks: int, nodes: int, nbytes: int, *, sparse: bool = False) -> Choice:
        """Return the best choice for `ranks` ranks on `nodes` nodes with `nbytes` bytes each.

        If nodes differ in size, their mean size is used.
        """
        per_node = -(-ranks // nodes)
        board = nodes < ranks and _first(self.board, per_node, nbytes, sparse=sparse)
        return self.complete(board, ranks, nodes, nbytes, sparse=sparse)

    def complete(
        self, board: bool, ranks: int, nodes: int, nbytes: int, *, schedule: str | None = None, sparse: bool = False
    ) -> Choice:
        """Return the best choice with or without a board. `schedule` is used if given; the rest is as for `choose`."""
        partners, among = (nodes, "nodes") if board else (ranks, "ranks")
        if schedule is None:
            schedule = _first(self.schedule, partners, nbytes, sparse=sparse, among=among)
        if not board:
            return Choice(False, schedule)
        segment_bytes = _first(self.segment_bytes, -(-ranks // nodes), nbytes, sparse=sparse)
        return Choice(True, schedule if nodes > 1 else None, segment_bytes)


QUESTIONS: dict[str, type] = {"board": bool, "schedule": str, "segment_bytes": int}
"""The questions of a table, with the types of its answers."""


def _first(rows: Sequence[Row[T]], ranks: int, nbytes: int, *, sparse: bool, among: str = "ranks") -> T:
    return next(row.answer for row in rows if row.holds(ranks, nbytes, sparse=sparse, among=among))


def _object(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: expected an object, got {value!r}" if value is not None else f"{key}: missing")
    return value


def _check_keys(value: Mapping[str, Any], prefix: str, known: Sequence[str]) -> None:
    for key in value:
        if key not in known:
            raise ValueError(f"{prefix}{key}: unknown, expected one of {', '.join(known)}")


def _rows(value: Any, question: str, kind: type) -> tuple[Row[Any], ...]:
    where = f"allreduce.{question}"
    if not isinstance(value, list):
        raise ValueError(
            f"{where}: expected a list of rows, got {value!r}" if value is not None else f"{where}: missing"
        )
    rows = []
    for number, row in enumerate(value):
        at = f"{where}[{number}]"
        row = _object(row, at)
        known: dict[str, type] = {question: kind, **LIMITS}
        if question != "schedule":
            del known["among"]
        _check_keys(row, f"{at}.", tuple(known))
        if question not in row:
            raise ValueError(f"{at}.{question}: missing")
        for key, entry in row.items():
            _check_entry(f"{at}.{key}", entry, known[key])
        if row.get("among", "ranks") not in AMONG:
            raise ValueError(f"{at}.among: expected 'ranks' or 'nodes', got {row['among']!r}")
        if kind is int and (row[question] < 1024 or row[question] % 64 or row[question] > 1 << 30):
            raise ValueError(f"{at}.{question}: expected a multiple of 64 from 1024 to 2^30, got {row[question]}")
        rows.append(Row(row[question], **{key: entry for key, entry in row.items() if key != question}))
    return tuple(rows)


def _check_entry(where: str, value: Any, kind: type) -> None:
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        what = {int: "an integer of at least 0", bool: "true or false"}.get(kind, "a name")
        raise ValueError(f"{where}: expected {what}, got {value!r}")


def _machine(value: Any) -> Machine | None:
    if value is None:
        return None
    value = _object(value, "machine")
    kinds = {"cpu": str, "cores": int, "mpi": str}
    _check_keys(value, "machine.", tuple(kinds))
    for field in fields(Machine):
        if field.name not in value:
            raise ValueError(f"machine.{field.name}: missing")
        _check_entry(f"machine.{field.name}", value[field.name], kinds[field.name])
    return Machine(**value)


def is_sparse(policy: Policy, late: str, max_staleness: int | None = None) -> bool:
    """Return True if few ranks contribute to a round, because the first rank starts it and late data is dropped."""
    return isinstance(policy, Solo) and late == "drop" and max_staleness is None


def is_known(schedule: str, known: Sequence[str]) -> bool:
    """Return True if the engine has a schedule. The name "tree:5" requires "tree:K" in `known`.

    >>> is_known("tree:5", ["ring", "tree", "tree:K"]), is_known("ring:5", ["ring", "tree", "tree:K"])
    (True, False)
    """
    name, colon, number = schedule.partition(":")
    if not colon:
        return name in known
    return f"{name}:K" in known and number.isdecimal() and 0 < int(number) < 2**31


def resolve(
    algorithm: str,
    known: Sequence[str],
    table: SelectionTable | CostModel,
    *,
    ranks: int,
    nodes: int,
    nbytes: int,
    sparse: bool = False,
) -> Choice:
    """Return the choice for an `algorithm`; raise ValueError if it is unknown, or impossible on these nodes.

    "auto" leaves the choice to `table`. "board" uses boards within nodes, and the table's schedule between nodes.
    "board+SCHEDULE" uses boards and the named schedule. "SCHEDULE" sends messages among all ranks. `known` lists the
    engine's schedules, as "NAME:K" if they take a number. `nbytes` is the size of one rank's data. `sparse` is True if
    few ranks contribute to a round.
    """
    if algorithm == "auto":
        choice = table.choose(ranks, nodes, nbytes, sparse=sparse)
    else:
        first, plus, rest = algorithm.partition("+")
        board = first == BOARD
        schedule = rest if board and plus else None if board else algorithm
        if schedule is not None and not is_known(schedule, known):
            raise ValueError(
                "algorithm: expected 'auto', 'board', NAME or 'board+NAME', with NAME one of "
                f"{', '.join(sorted(known))}; got {algorithm!r}"
            )
        if board and nodes == ranks:
            raise ValueError(
                f"algorithm {algorithm!r}: expected nodes of several ranks (see ranks_per_node), got {nodes} nodes of "
                "1 rank"
            )
        choice = table.complete(board, ranks, nodes, nbytes, schedule=schedule, sparse=sparse)
    if choice.schedule is not None and not is_known(choice.schedule, known):
        raise ValueError(
            f"selection table {table.name}: expected a schedule of {', '.join(sorted(known))}; got {choice.schedule!r}"
        )
    return choice
