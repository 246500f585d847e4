"""Data sets. To add one, write a function that returns a `Dataset`, and add a line here."""

from __future__ import annotations

from ..registry import Registry

__all__ = ["DATASETS"]

DATASETS = Registry(
    "data",
    {name: f"{__name__}.{name}:{name}" for name in ("hyperplane", "digits", "cifar10", "sequences", "characters")},
)
