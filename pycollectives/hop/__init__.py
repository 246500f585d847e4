"""Hop: decentralized training where ranks differ in speed, with update queues and token queues."""

from __future__ import annotations

from .collective import HopStatistics
from .gaps import gap_bounds
from .modes import BackupWorkers, BoundedStaleness, Hybrid, Mode, NotifyAck, Skip, Standard, parse
from .token_queue import TokenQueue
from .update_queue import Update, UpdateQueue

__all__ = [
    "BackupWorkers",
    "BoundedStaleness",
    "HopStatistics",
    "Hybrid",
    "Mode",
    "NotifyAck",
    "Skip",
    "Standard",
    "TokenQueue",
    "Update",
    "UpdateQueue",
    "gap_bounds",
    "parse",
]
