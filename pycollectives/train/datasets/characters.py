"""Characters of real text that comes with Python: the source of its standard library.

The text depends on Python's version. The fingerprint of the data in a run's summary identifies it.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .base import Dataset

MODULES = ("argparse", "difflib", "doctest", "inspect", "optparse", "subprocess", "tarfile", "threading", "typing")
SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))
"""A character's number is its place here; every other character counts as a space."""


def characters(
    *, examples: Size = 4096, validation: Size = 512, context: Size = 32, held_out: float = 0.1, seed: int = 0
) -> Dataset:
    """Return pieces of text, int64 of shape (n, context), and the same pieces one character later, to predict.

    The pieces begin at random places. Validation pieces are from the end of the text, a fraction `held_out` without
    training pieces.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"characters: held_out: expected a fraction between 0 and 1, got {held_out}")
    text = _symbols(_text())
    kept = int(len(text) * (1 - held_out))
    longest = min(kept, len(text) - kept) - 1
    if context > longest:
        raise ValueError(f"characters: context: expected at most {longest}, got {context}")
    random = np.random.default_rng(seed)
    return Dataset(_pieces(text[:kept], examples, context, random), _pieces(text[kept:], validation, context, random))


def _text() -> str:
    folder = Path(sysconfig.get_path("stdlib"))
    return "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)


def _symbols(text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    places = {symbol: place for place, symbol in enumerate(SYMBOLS)}
    space = places[" "]
    return np.array([places.get(character, space) for character in text], np.int64)


def _pieces(
    text: np.ndarray[tuple[int], np.dtype[np.int64]], count: int, context: int, random: np.random.Generator
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    places = random.integers(len(text) - context, size=count)[:, np.newaxis] + np.arange(context)
    return text[places], text[places + 1]
