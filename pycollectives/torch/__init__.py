"""Optimizers of PyTorch that work with those of the other ranks. Importing it loads PyTorch."""

from __future__ import annotations

from ..support.extras import how_to_install

try:
    import torch as _  # noqa: F401 - says at once what is missing
except ModuleNotFoundError as error:
    text = f"pycollectives.torch needs PyTorch: {how_to_install('torch')}"
    raise ImportError(text, name=error.name) from None

from .decentralized import DecentralizedOptimizer
from .eager import EagerOptimizer
from .refusals import open_optimizers

__all__ = ["DecentralizedOptimizer", "EagerOptimizer", "open_optimizers"]
