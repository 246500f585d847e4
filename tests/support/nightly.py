"""Cases that are left to `make nightly`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["nightly_unless"]

Case = TypeVar("Case")


def nightly_unless(in_ci: Callable[[Case], bool], cases: Iterable[Case]) -> list[object]:
    """Return the cases for `pytest.mark.parametrize`: those that are not in CI are marked `nightly`."""
    return [case if in_ci(case) else _nightly(case) for case in cases]


def _nightly(case: object) -> object:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
