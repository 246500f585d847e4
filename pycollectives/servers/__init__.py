"""The parameter server (ElasticBSP): how it updates weights, and when its workers continue."""

from __future__ import annotations

from .statistics import ParameterServerStatistics, PushInfo, ServerStatistics, WorkerStatistics
from .sync import (
    ASP,
    BSP,
    DSSP,
    EAMSGD,
    SSP,
    ElasticBSP,
    MindFlayer,
    Rennala,
    Rescaled,
    Ringleader,
    Ringmaster,
    Synchronization,
    parse,
)
from .update import SGD, Adam, UpdateRule

__all__ = [
    "ASP",
    "BSP",
    "DSSP",
    "EAMSGD",
    "SGD",
    "SSP",
    "Adam",
    "ElasticBSP",
    "MindFlayer",
    "ParameterServerStatistics",
    "PushInfo",
    "Rennala",
    "Rescaled",
    "Ringleader",
    "Ringmaster",
    "ServerStatistics",
    "Synchronization",
    "UpdateRule",
    "WorkerStatistics",
    "parse",
]
