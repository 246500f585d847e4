"""Common checks of arguments. An error names the argument, the expected values and the found value."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import TYPE_CHECKING, Any, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_NAME = 200
"""Limit of a collective's name in characters."""


def checked_integer(what: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return an integer within limits, of any type that Python takes as an index; raise `ValueError` or `TypeError`.

    >>> checked_integer("history", 8, at_least=1)
    8
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an integer, got {value!r}") from None
    if number < at_least:
        raise ValueError(f"{what}: expected at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{what}: expected at most {at_most}, got {number}")
    return number


def checked_choice(what: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise `ValueError`."""
    if value not in choices:
        raise ValueError(f"{what}: expected {' or '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def checked_name(value: Any) -> str:
    """Return the checked name of a collective; raise `ValueError` or `TypeError`."""
    if not isinstance(value, str):
        raise TypeError(f"name: expected a string, got {value!r}")
    if not 0 < len(value) <= MAX_NAME:
        raise ValueError(f"name: expected 1 to {MAX_NAME} characters, got {len(value)}")
    if not value.isprintable():
        raise ValueError(f"name: expected printable characters, got {value!r}")
    return value


def checked_rank(what: str, value: Any, size: int) -> int:
    """Return the checked rank of a communicator of `size` ranks; raise `ValueError` or `TypeError`."""
    try:
        rank = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected a rank, got {value!r}") from None
    if not 0 <= rank < size:
        raise ValueError(f"{what}: expected 0 <= {what} < {size}, got {rank}")
    return rank


def checked_group(group: Iterable[int], rank: int, size: int) -> list[int]:
    """Return the members of a group, ascending; ValueError or TypeError if `rank` is missing or a member repeated."""
    try:
        members = sorted(operator.index(member) for member in group)
    except TypeError:
        raise TypeError(f"group: expected the ranks of its members, got {group!r}") from None
    for member in members:
        if not 0 <= member < size:
            raise ValueError(f"group: expected ranks 0 to {size - 1}, got {member}")
    if len(set(members)) != len(members):
        raise ValueError(f"group: expected different ranks, got {members}")
    if rank not in members:
        raise ValueError(f"group: expected this rank, {rank}, among the members, got {members}")
    return members


def checked_timeout(value: SupportsFloat | None, what: str = "timeout") -> float | None:
    """Return a limit in seconds, `math.inf` for no limit, or None for the default; raise `ValueError` or `TypeError`.

    `timeout_from` of the bindings does the same check for limits that go to the engine directly.
    """
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{what}: expected seconds or None, got {value!r}")
    seconds = float(value)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{what}: expected seconds >= 0 or None, got {value!r}")
    return seconds


def with_prefix(error: Exception, prefix: str) -> Exception:
    r"""Return an error of the same type whose text begins with `prefix`.

    If the type needs more arguments than a text, the error has the nearest base class that does not.

    >>> with_prefix(ValueError("expected 3, got 4"), "count")
    ValueError('count: expected 3, got 4')
    >>> with_prefix(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "name")
    UnicodeError("name: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte")
    """
    for kind in type(error).__mro__:
        try:
            made: Exception = kind(f"{prefix}: {error}")
        except TypeError:
            continue
        return made
    raise AssertionError("expected Exception to take a text")


# --- Fields of frozen dataclasses, such as policies -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Declared:
    """Base of frozen dataclasses whose fields declare their checks: `n: int = field(metadata=integer(at_least=1))`."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if "check" in one.metadata and not (value is None and one.metadata.get("optional")):
                object.__setattr__(self, one.name, one.metadata["check"](type(self).__name__, one.name, value))

    def _declared(self) -> dict[str, Any]:
        """Return the values of the fields that declare a name in the engine, by that name."""
        named = [one for one in dataclasses.fields(self) if "engine" in one.metadata]
        return {one.metadata["engine"]: getattr(self, one.name) for one in named}


def integer(*, at_least: int | None = None, at_most: int | None = None, **more: Any) -> dict[str, Any]:
    """Return the metadata of an integer field, with its name in the `engine`; an `optional` field may be None."""

    def check(kind: str, field: str, value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{kind}: expected an integer {field}, got {value!r}") from None
        if at_least is not None and number < at_least:
            raise ValueError(f"{kind}: expected {field} >= {at_least}, got {number}")
        if at_most is not None and number > at_most:
            raise ValueError(f"{kind}: expected {field} <= {at_most}, got {number}")
        return number

    return {"check": check, **more}


def hash_seed(*, at_least: int | None = None, **more: Any) -> dict[str, Any]:
    """Return the metadata of a field with a seed for the engine's hash."""

    def check(kind: str, field: str, value: Any) -> int:
        number: int = integer(at_least=at_least)["check"](kind, field, value)
        if not 0 <= number < 2**64:
            raise ValueError(f"{kind}: expected 0 <= {field} < 2**64, got {number}")
        return number

    return {"check": check, **more}


def checked_number(kind: str, field: str, value: Any, unit: str = "") -> float:
    """Return the value of a field that is a finite number >= 0; raise `ValueError` or `TypeError`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{kind}: expected a number{unit and f' of {unit}'} for {field}, got {value!r}") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{kind}: expected a finite {field} >= 0{unit and f' {unit}'}, got {value!r}")
    return number


def choice(*choices: str) -> dict[str, Any]:
    """Return the metadata of a field that is one of some strings."""
    return {"check": lambda kind, field, value: checked_choice(f"{kind}: {field}", value, choices)}
