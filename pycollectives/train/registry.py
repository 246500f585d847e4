"""Choices by name: methods, models, data sets, optimizers, loads.

A choice is written NAME,KEY=VALUE,... on the command line, or as a table {name = "NAME", KEY = VALUE} in TOML. Keys are
the keyword arguments of the chosen object; a key that ends in _ms or _us is in that unit, for an argument in seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .values import Option, check, options_of

UNITS = {"_ms": 1e-3, "_us": 1e-6}


@dataclass(frozen=True)
class Choice:
    """The name and options of a choice.

    >>> Choice.parse("eager,policy=quorum:4,max_staleness=8")
    Choice(name='eager', options={'policy': 'quorum:4', 'max_staleness': 8})
    >>> Choice.parse("one-late,skew_ms=300")
    Choice(name='one-late', options={'skew': 0.3})
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: object) -> Choice:
        """Return the choice that a string from the command line, or a value in TOML, describes."""
        if isinstance(value, Choice):
            return value
        if isinstance(value, str):
            name, *pairs = value.split(",")
            split = [pair.partition("=") for pair in pairs]
            if not name or any(not (key and equals) for key, equals, _ in split):
                raise ValueError(f"expected NAME or NAME,KEY=VALUE,...; got {value!r}")
            return cls(name, dict(_in_seconds(key, _value(text)) for key, _, text in split))
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            return cls(value["name"], dict(_in_seconds(key, value) for key, value in value.items() if key != "name"))
        raise ValueError(f"expected a string or a table with a name, got {value!r}")

    def __str__(self) -> str:
        """Return the choice as a command-line string, in the library's units."""
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
    """Choices by name: each is "MODULE:ATTRIBUTE", imported only when it is used.

    `aliases` are other names of options. An alias applies if the choice has the option, but no option with the alias's
    name.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], aliases: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._aliases = dict(aliases)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all choices."""
        return tuple(self._entries)

    def add(self, name: str, target: str) -> None:
        """Add a choice."""
        self._entries[name] = target

    def canonical(self, choice: Choice) -> Choice:
        """Return the choice with names instead of aliases; ValueError if an option and its alias are both given."""
        given = self._aliases.keys() & choice.options.keys()
        if not given or choice.name not in self._entries:
            return choice
        accepted = options_of(self._target(choice))
        names = {alias: self._aliases[alias] for alias in given if alias not in accepted}
        for alias, name in names.items():
            if name in choice.options:
                raise ValueError(f"{self.kind} {choice.name!r}: expected {name} or {alias}, its other name, got both")
        return Choice(choice.name, {names.get(key, key): value for key, value in choice.options.items()})

    def find(self, choice: Choice) -> Callable[..., Any]:
        """Check the options, and return the chosen object; ImportError if its requirements are not installed."""
        return self._checked(choice)[0]

    def make(self, choice: Choice, *arguments: Any, **defaults: Any) -> Any:
        """Create the chosen object with the `defaults` that it accepts; ValueError if an option is wrong or missing."""
        target, accepted, given = self._checked(choice)
        shared = {key: value for key, value in defaults.items() if key in accepted}
        options = {**shared, **given}
        missing = [key for key, one in accepted.items() if one.is_required and key not in options]
        if missing:
            raise ValueError(f"{self.kind} {choice.name!r}: needs the option {missing[0]!r}")
        return target(*arguments, **options)

    def _checked(self, choice: Choice) -> tuple[Callable[..., Any], dict[str, Option], dict[str, Any]]:
        """Return the chosen object, the options that it accepts, and the given options."""
        if choice.name not in self._entries:
            raise ValueError(f"{self.kind}: expected one of {', '.join(self.names)}; got {choice.name!r}")
        target = self._target(choice)
        accepted, given = options_of(target), self.canonical(choice).options
        for key, value in given.items():
            if key not in accepted:
                known = f"its options are {', '.join(accepted)}" if accepted else "it has no options"
                raise ValueError(f"{self.kind} {choice.name!r}: unknown option {key!r}; {known}")
            try:
                check(value, accepted[key].kind)
            except ValueError as error:
                raise ValueError(f"{self.kind} {choice.name!r}: {key}: {error}") from None
        return target, accepted, given

    def _target(self, choice: Choice) -> Callable[..., Any]:
        module, _, attribute = self._entries[choice.name].partition(":")
        target: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return target
