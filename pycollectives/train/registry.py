"""Choices by name: methods, models, data sets, optimizers, loads.

A choice is written NAME,KEY=VALUE,... on the command line, or as a table {name = "NAME", KEY = VALUE} in TOML. Keys are
the keyword arguments of what is chosen; a key that ends in _ms or _us is in that unit, for an argument in seconds.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Choice", "Registry"]

UNITS = {"_ms": 1e-3, "_us": 1e-6}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


class Simple(NamedTuple):
    """A type whose values are told from others before they are used."""

    words: str
    fits: Callable[[object], bool]


SIMPLE = {
    "bool": Simple("true or false", lambda value: isinstance(value, bool)),
    "int": Simple("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": Simple("a number", lambda value: not isinstance(value, bool) and _is_finite(value)),
    "str": Simple("a word (a file that has a number for its name: ./NAME)", lambda value: isinstance(value, str)),
}
"""By the annotation of an option; others are checked by what takes them."""

SIZES = ("dimensions", "examples", "features", "hidden", "points", "validation", "width")
"""Options of which there is at least 1, whoever takes them."""


@dataclass(frozen=True)
class Choice:
    """A name and options.

    >>> Choice.parse("eager,policy=quorum:4,max_staleness=8")
    Choice(name='eager', options={'policy': 'quorum:4', 'max_staleness': 8})
    >>> Choice.parse("one-late,skew_ms=300")
    Choice(name='one-late', options={'skew': 0.3})
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, said: object) -> Choice:
        """Return what a text of the command line, or a value of TOML, says."""
        if isinstance(said, Choice):
            return said
        if isinstance(said, str):
            name, *pairs = said.split(",")
            split = [pair.partition("=") for pair in pairs]
            if not name or any(not (key and equals) for key, equals, _ in split):
                raise ValueError(f"expected NAME or NAME,KEY=VALUE,...; got {said!r}")
            return cls(name, dict(_in_seconds(key, _value(text)) for key, _, text in split))
        if isinstance(said, Mapping) and isinstance(said.get("name"), str):
            return cls(said["name"], dict(_in_seconds(key, value) for key, value in said.items() if key != "name"))
        raise ValueError(f"expected a text or a table with a name, got {said!r}")

    def __str__(self) -> str:
        """Write it as the command line does, in the library's units."""
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def _in_seconds(key: str, value: object) -> tuple[str, object]:
    for suffix, unit in UNITS.items():
        if key.endswith(suffix) and isinstance(value, int | float):
            return key.removesuffix(suffix), round(value * unit, 12)
    return key, value


class Registry:
    """What can be chosen, by name: each "MODULE:ATTRIBUTE", imported only when it is used."""

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._entries)

    def add(self, name: str, target: str) -> None:
        """Add one."""
        self._entries[name] = target

    def find(self, choice: Choice) -> Callable[..., Any]:
        """Return what is chosen; its options have been checked.

        Raises
        ------
        ValueError
            The name or an option is unknown, or an option is no number where one is expected.
        ImportError
            What it needs is not installed.
        """
        if choice.name not in self._entries:
            raise ValueError(f"{self.kind}: expected one of {', '.join(self.names)}; got {choice.name!r}")
        module, _, attribute = self._entries[choice.name].partition(":")
        target: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        accepted = _options_of(target)
        for key, value in choice.options.items():
            if key not in accepted:
                known = f"its options are {', '.join(accepted)}" if accepted else "it has no options"
                raise ValueError(f"{self.kind} {choice.name!r}: unknown option {key!r}; {known}")
            expected = SIMPLE.get(str(accepted[key].annotation).removesuffix(" | None"))
            if expected is not None and not expected.fits(value):
                raise ValueError(f"{self.kind} {choice.name!r}: {key}: expected {expected.words}, got {value!r}")
            if key in SIZES and value < 1:
                raise ValueError(f"{self.kind} {choice.name!r}: {key}: expected at least 1, got {value}")
        return target

    def make(self, choice: Choice, *arguments: Any, **defaults: Any) -> Any:
        """Return an object of what is chosen; `defaults` are given to those that accept them.

        Raises
        ------
        ValueError, ImportError
            As `find`; or an option is missing.
        """
        target = self.find(choice)
        accepted = _options_of(target)
        shared = {key: value for key, value in defaults.items() if key in accepted}
        options = {**shared, **choice.options}
        missing = [key for key, one in accepted.items() if one.default is one.empty and key not in options]
        if missing:
            raise ValueError(f"{self.kind} {choice.name!r}: needs the option {missing[0]!r}")
        return target(*arguments, **options)


def _options_of(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(target).parameters.items()
    return {name: parameter for name, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
