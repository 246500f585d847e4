"""Check the values of options against annotations, before any object is made.

This module checks bool, int, float and str, a choice among them, `X | None`, and `Annotated[X, AtLeast(1)]`. Values of
other types are checked by the object that receives them.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class AtLeast:
    """A lower bound on a number."""

    least: float

    def check(self, value: Any) -> None:
        """Raise `ValueError` if a value is below the bound."""
        if value < self.least:
            raise ValueError(f"expected at least {self.least}, got {value}")


Size: TypeAlias = Annotated[int, AtLeast(1)]
"""A number that is at least 1."""

Count: TypeAlias = Annotated[int, AtLeast(0)]
"""A number of things, possibly 0."""


class Option(NamedTuple):
    """A keyword-only argument of a choice."""

    kind: Any
    is_required: bool


def options_of(target: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a class or a function, by name."""
    function = getattr(target, "__init__") if isinstance(target, type) else target  # noqa: B009 - for mypy
    names = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = inspect.signature(target).parameters.items()
    return {
        name: Option(_kind_of(one.annotation, names), one.default is one.empty)
        for name, one in parameters
        if one.kind is one.KEYWORD_ONLY
    }


def _kind_of(annotation: Any, names: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True)["it"]
    except NameError:  # imported only for type checkers
        return Any


def check(value: object, kind: Any) -> None:
    """Raise `ValueError` if a value is not of the type `kind`. Types that this module does not support always pass."""
    bounds: list[AtLeast] = []
    kinds = list(_alternatives(kind, bounds))
    if any(one not in SIMPLE for one in kinds) or any(SIMPLE[one].fits(value) for one in kinds):
        if value is not None:
            for bound in bounds:
                bound.check(value)
        return
    words = " or ".join(SIMPLE[one].words for one in kinds if one is not NoneType)
    raise ValueError(f"expected {words}, got {value!r}")


def _alternatives(kind: Any, bounds: list[AtLeast]) -> Iterable[Any]:
    """Yield the alternatives of a type, and append its bounds to `bounds`."""
    if get_origin(kind) is Annotated:
        bounds += [one for one in kind.__metadata__ if isinstance(one, AtLeast)]
        yield from _alternatives(kind.__origin__, bounds)
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _alternatives(one, bounds)
    else:
        yield kind


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class _Simple(NamedTuple):
    """A type that `check` supports: its name in messages, and a test for its values."""

    words: str
    fits: Callable[[object], bool]


SIMPLE = {
    bool: _Simple("true or false", lambda value: isinstance(value, bool)),
    int: _Simple("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: _Simple("a number", _is_number),
    str: _Simple("a word (for a file whose name is a number: ./NAME)", lambda value: isinstance(value, str)),
    NoneType: _Simple("nothing", lambda value: value is None),
}
