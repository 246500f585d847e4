"""PyTorch optimizers that average gradients or parameters over ranks. Importing this module loads PyTorch."""

from __future__ import annotations

from ..support.extras import how_to_install

try:
    import torch as _  # noqa: F401 - fails early, with advice
except ModuleNotFoundError as error:
    text = f"pycollectives.torch needs PyTorch: {how_to_install('torch')}"
    raise ImportError(text, name=error.name) from None

from .decentralized import DecentralizedOptimizer
from .eager import EagerOptimizer
from .refusals import open_optimizers
from .sampler import SharedSampler

__all__ = ["DecentralizedOptimizer", "EagerOptimizer", "SharedSampler", "open_optimizers"]
