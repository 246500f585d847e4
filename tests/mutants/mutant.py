"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A mistake in one place, and the tests of which at least one must fail by it."""

    breaks: str
    file: str
    old: str
    """Its text, which is there once."""
    new: str
    tests: tuple[str, ...]
