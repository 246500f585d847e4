"""NCCL, a library that reduces among CUDA devices: what it takes, and where it can be used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..collective import Collective
    from ..context import Context
    from .deadline import Deadline

__all__ = ["NCCL", "check_arrays", "warn", "why_not"]

NCCL = "nccl"
"""The algorithm of collectives that ask for it."""

NOT_TAKEN = ("int16", "uint16")


def check_arrays(device: int | None, dtype: np.dtype[np.generic]) -> None:
    """Raise `ValueError` for arrays that NCCL never takes; `device`: their number, None on the host."""
    if device is None:
        raise ValueError("algorithm='nccl': expected an array on a CUDA device as like, got one on the host")
    if dtype.name in NOT_TAKEN:
        raise ValueError(f"algorithm='nccl': expected elements that NCCL can reduce, got {dtype}")


def why_not(context: Context, device: int, deadline: Deadline) -> str:
    """Return why NCCL cannot join the devices of all ranks; collective. Empty: it can."""
    from .native import core

    return core.why_no_communicator(context.engine, device=device, timeout=deadline.remaining())


def warn(context: Context, made: Collective, why: str, otherwise: str) -> None:
    """Warn on rank 0 that a collective does without NCCL, if there is a reason; it is made, as on the other ranks."""
    if not why or context.rank != 0:
        return
    try:
        warnings.warn(f"{made.name}: NCCL is not used, but {otherwise}: {why}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        made.abort()
        raise
