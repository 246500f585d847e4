"""Detect a backward pass inside a reentrant activation checkpoint (torch.utils.checkpoint, use_reentrant=True).

Such a checkpoint runs its own backward pass inside the program's. If a parameter is used in several such
checkpoints, or both inside and outside one, its gradient arrives in parts, and its hooks run once per part.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType


def graph_task() -> int:
    """Return the number of the running backward pass, in order of start; -1 if none runs."""
    number: int = torch._C._current_graph_task_id()
    return number


def in_reentrant_checkpoint(since: int) -> bool:
    """Whether a checkpoint's backward pass is running, or `since` was such a pass inside the running pass."""
    if graph_task() < since:  # the running pass began before `since`, which has ended, and so contained it
        return True
    from torch.utils.checkpoint import CheckpointFunction

    code = CheckpointFunction.backward.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
