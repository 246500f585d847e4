"""Derive a selection table from the measurements of `tune`. The functions are pure, without MPI.

A *cell* is a number of ranks, a size, and balanced or sparse rounds. In each *pass*, the choices of a cell are timed
one after another. The default stays unless another choice is better by more than noise: its median is lower by more
than `MARGIN`, and by more than the spread of either choice.

A measurement applies up to the geometric mean with each neighboring measurement, but no further than a factor of
`REACH`. The smallest size also applies to all smaller sizes if it is at most `SHORT`, and the largest size to all
larger sizes if it is at least `LONG`. For more ranks than were measured, the default stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ..selection.choice import Choice, Row, SelectionTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MARGIN = 0.1
PASSES_NEEDED = 3
"""The least number of passes for a choice other than the default."""

REACH = 4
SHORT = 64
LONG = 4 << 20

T = TypeVar("T", bool, str, int)


@dataclass(frozen=True)
class Cell:
    """The times of all choices in seconds, from the same passes."""

    ranks: int
    nbytes: int  # of each rank
    sparse: bool  # one early rank, under `Solo`; otherwise all ranks together, under `Full`
    seconds: Mapping[Choice, Sequence[float]]  # by choice and pass: the median over calls of the mean over ranks

    def median(self, choice: Choice) -> float:
        """Return the median time of a choice over all passes, in seconds."""
        return median(self.seconds[choice])

    def spread(self, choice: Choice) -> float:
        """Return the width of the middle half of the passes, relative to the median."""
        if len(self.seconds[choice]) < 2:
            return 0.0
        low, middle, high = quantiles(self.seconds[choice], n=4, method="inclusive")
        return (high - low) / middle

    @property
    def passes(self) -> int:
        """The number of passes in which each choice was timed."""
        return min(map(len, self.seconds.values()), default=0)

    def better(self, choices: Sequence[Choice], default: Choice) -> Choice:
        """Return the fastest of `choices` if it is faster than `default` by more than noise, otherwise `default`."""
        measured = [choice for choice in choices if choice in self.seconds]
        if default not in self.seconds or not measured or self.passes < PASSES_NEEDED:
            return default
        fastest = min(measured, key=self.median)
        noise = max(MARGIN, self.spread(fastest), self.spread(default))
        return fastest if self.median(fastest) < (1 - noise) * self.median(default) else default

    def as_json(self) -> dict[str, Any]:
        """Return all measurements, in microseconds."""
        return {
            "ranks": self.ranks,
            "bytes": self.nbytes,
            "sparse": self.sparse,
            "passes": self.passes,
            "latency_us": [
                {
                    "algorithm": choice.name,
                    **({"segment_bytes": choice.segment_bytes} if choice.board else {}),
                    "p50": round(self.median(choice) * 1e6, 2),
                    "spread": round(self.spread(choice), 3),
                }
                for choice in self.seconds
            ],
        }


class Decision(NamedTuple):
    """The values that replace the default table's values for a cell; None keeps the default value."""

    schedule: str | None
    board: bool | None
    segment_bytes: int | None
    chosen: Choice
    default: Choice


def decide(cell: Cell, default: SelectionTable) -> Decision:
    """Return the values in which a cell, whose ranks are one node, differs from the default table."""
    choices = list(cell.seconds)
    usual_flat = default.complete(False, cell.ranks, cell.ranks, cell.nbytes, sparse=cell.sparse)
    flat = cell.better([choice for choice in choices if not choice.board], usual_flat)
    schedule = flat.schedule if flat != usual_flat else None
    boards = [choice for choice in choices if choice.board]
    if not boards:
        return Decision(schedule, None, None, flat, usual_flat)
    usual = default.complete(True, cell.ranks, 1, cell.nbytes, sparse=cell.sparse)
    board = cell.better(boards, usual)
    segment = board.segment_bytes if board != usual else None
    by_default = default.choose(cell.ranks, 1, cell.nbytes, sparse=cell.sparse)
    chosen = cell.better([flat], board) if by_default.board else cell.better([board], flat)
    use_board = chosen.board if chosen.board != by_default.board else None
    return Decision(schedule, use_board, segment, chosen, usual if by_default.board else usual_flat)


def reaches(points: Sequence[int], *, short: int = 0, long: int | None = None) -> list[tuple[int | None, int | None]]:
    """Return the range that each point represents, as inclusive limits (low, high); None means no limit.

    `points` must be ascending.

    >>> reaches([8, 64, 8192], short=64)
    [(None, 22), (23, 256), (2048, 32768)]
    """
    lows: list[int | None] = [None if points[0] <= short else -(-points[0] // REACH)]
    highs: list[int | None] = []
    for point, following in pairwise(points):
        halfway = isqrt(point * following)
        highs.append(min(halfway, REACH * point))
        lows.append(max(halfway + 1, -(-following // REACH)))
    highs.append(None if long is not None and points[-1] >= long else REACH * points[-1])
    return list(zip(lows, highs, strict=True))


class _Box(NamedTuple):
    ranks: tuple[int | None, int | None]
    nbytes: tuple[int | None, int | None]
    sparse: bool | None
    answer: Any


def derive(
    cells: Sequence[Cell], default: SelectionTable, *, among: str | None, source: str, name: str = "measured"
) -> SelectionTable:
    """Return the default table, preceded by rows for the choices that were measured to be better.

    `cells` have the same sizes for each number of ranks. `among` is as in `Row`: "ranks" if schedules were measured
    among ranks that share a machine.
    """
    decisions = {(cell.ranks, cell.nbytes, cell.sparse): decide(cell, default) for cell in cells}

    def rows(answer: Callable[[Decision], T | None], among: str | None = None) -> tuple[Row[T], ...]:
        return tuple(
            Row(box.answer, *box.ranks, *box.nbytes, box.sparse, among)
            for box in _boxes({place: answer(decision) for place, decision in decisions.items()})
        )

    return SelectionTable(
        schedule=(*rows(lambda decision: decision.schedule, among), *default.schedule),
        board=(*rows(lambda decision: decision.board), *default.board),
        segment_bytes=(*rows(lambda decision: decision.segment_bytes), *default.segment_bytes),
        source=source,
        name=name,
        machine=default.machine,
    )


def _boxes(answers: Mapping[tuple[int, int, bool], Any]) -> list[_Box]:
    """Return the ranges of ranks and sizes whose answer is not None; join neighboring ranges with equal answers."""
    if not answers:
        return []
    counts = sorted({ranks for ranks, _, _ in answers})
    sizes = sorted({nbytes for _, nbytes, _ in answers})
    size_limits = dict(zip(sizes, reaches(sizes, short=SHORT, long=LONG), strict=True))
    rank_limits = dict(zip(counts, reaches(counts), strict=True))
    rank_limits[counts[0]] = (counts[0], rank_limits[counts[0]][1])
    rank_limits[counts[-1]] = (rank_limits[counts[-1]][0], counts[-1])
    boxes: list[_Box] = []
    for ranks in counts:
        by_kind = {
            sparse: _joined(
                [
                    _Box(rank_limits[ranks], size_limits[nbytes], sparse, answers[ranks, nbytes, sparse])
                    for nbytes in sizes
                    if answers.get((ranks, nbytes, sparse)) is not None
                ],
                "nbytes",
            )
            for sparse in (False, True)
        }
        both = [box for box in by_kind[False] if box._replace(sparse=True) in by_kind[True]]
        boxes += [box._replace(sparse=None) for box in both]
        for sparse, found in by_kind.items():
            boxes += [box for box in found if box._replace(sparse=False) not in both and box.sparse == sparse]
    boxes.sort(key=lambda box: (str(box.answer), str(box.sparse), box.nbytes[0] or 0, box.ranks[0] or 0))
    return sorted(_joined(boxes, "ranks"), key=lambda box: (box.ranks[0] or 0, box.nbytes[0] or 0))


def _joined(boxes: Sequence[_Box], along: Literal["ranks", "nbytes"]) -> list[_Box]:
    """Join each box to the one before it if both differ in only one range and the ranges touch."""
    joined: list[_Box] = []
    for box in boxes:
        low, high = getattr(box, along)
        if joined:
            first, last = getattr(joined[-1], along)
            touches = last is not None and low == last + 1
            if touches and _elsewhere(joined[-1], along) == _elsewhere(box, along):
                limits = (first, high)
                joined[-1] = box._replace(ranks=limits) if along == "ranks" else box._replace(nbytes=limits)
                continue
        joined.append(box)
    return joined


def _elsewhere(box: _Box, along: str) -> tuple[object, ...]:
    return (box.nbytes if along == "ranks" else box.ranks, box.sparse, box.answer)
