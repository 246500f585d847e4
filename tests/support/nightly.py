"""Cases that only `make nightly` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["in_turn", "nightly_unless"]

Case = TypeVar("Case")


def nightly_unless(in_ci: Callable[[Case], bool], cases: Iterable[Case]) -> list[object]:
    """Return the cases for `pytest.mark.parametrize`: those that are not in CI are marked `nightly`."""
    return [case if in_ci(case) else _nightly(case) for case in cases]


def in_turn(cases: Sequence[object], others: Sequence[object]) -> list[object]:
    """Return each case with each of the others. CI takes them in rotation, until it has used all of both."""
    pairs = [(*_values(case), other) for case in cases for other in others]
    turns = range(max(len(cases), len(others)))
    in_ci = {turn % len(cases) * len(others) + turn % len(others) for turn in turns}
    return [pair if place in in_ci else _nightly(pair) for place, pair in enumerate(pairs)]


def _values(case: object) -> tuple[object, ...]:
    return case if isinstance(case, tuple) else (case,)


def _nightly(case: object) -> object:
    return pytest.param(*_values(case), marks=pytest.mark.nightly)
