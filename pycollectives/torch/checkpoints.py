"""Reentrant activation checkpoints (torch.utils.checkpoint, use_reentrant=True): whether backward is in one.

Such a checkpoint runs a backward pass of its own inside the program's. A parameter that is used in several of them, or
in one and outside, gets its gradient in parts, and its hooks are called for each.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["graph_task", "in_reentrant_checkpoint"]


def graph_task() -> int:
    """Return the number of the backward pass that runs, which are counted as they begin; -1: none does."""
    number: int = torch._C._current_graph_task_id()
    return number


def in_reentrant_checkpoint(since: int) -> bool:
    """Whether hooks are called by a checkpoint's backward pass, or were, in `since`, inside the one that runs now."""
    if graph_task() < since:  # the one that runs began before the one that has ended, so that was inside it
        return True
    from torch.utils.checkpoint import CheckpointFunction

    code = CheckpointFunction.backward.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
