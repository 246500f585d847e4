"""Collectives that do not wait for stragglers, for MPI programs in Python.

Importing this package does not start MPI: the extension and `mpi4py.MPI` are loaded when the first `Communicator` is
made, or when `Round` or `RoundInfo` is asked for.

>>> import numpy as np, pycollectives as pc
>>> from mpi4py import MPI
>>> with pc.Communicator(MPI.COMM_SELF) as comm:
...     ar = comm.partial_allreduce(like=np.zeros(2), op=MPI.SUM, policy=pc.Majority(seed=7))
...     info = ar.contribute(np.ones(2)).wait(timeout=30.0)
...     print(ar.result)
[1. 1.]
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING

# Python started in the source tree finds the sources first; the extension is then the installed one.
__path__ = extend_path(__path__, __name__)

from . import hop, topology, zipline
from .communicator import Communicator
from .hop.collective import Hop, HopStatistics
from .hop.modes import BackupWorkers, BoundedStaleness, Hybrid, NotifyAck, Skip, Standard
from .hop.token_queue import TokenQueue
from .hop.update_queue import Update, UpdateQueue
from .mpi_api import Allreduce_init, PartialRequest
from .neighbor_averaging.d_psgd import NeighborAveraging
from .neighbor_averaging.pairwise import PairwiseAveraging, PairwiseStatistics
from .neighbor_averaging.push_sum import PushSum
from .parameter_server.collective import (
    ParameterServer,
    PushInfo,
    PushRequest,
    ServerStatistics,
    WorkerStatistics,
)
from .parameter_server.sync import (
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
)
from .parameter_server.update import SGD, Adam
from .partial_allreduce.collective import PartialAllreduce
from .partial_allreduce.policies import AllOf, AnyOf, Full, Majority, Policy, Quorum, Solo
from .partial_allreduce.requests import wait_all, wait_any
from .partial_reduce.collective import GroupInfo, PartialReduce
from .partial_reduce.generators import PunctualGroups, RandomGroups, SmartGroups, StaticGroups
from .support.costs import Costs
from .support.errors import ClosedError, MismatchError, RankFailedError, ScheduleError, StallError, TransportError
from .support.flattening import flatten
from .support.operations import AVG
from .topology.graph import Topology

try:
    from ._version import version as __version__
except ImportError:  # a source tree that was not built
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from ._core import Round, RoundInfo

__all__ = [
    "ASP",
    "AVG",
    "BSP",
    "DSSP",
    "EAMSGD",
    "SGD",
    "SSP",
    "Adam",
    "AllOf",
    "Allreduce_init",
    "AnyOf",
    "BackupWorkers",
    "BoundedStaleness",
    "ClosedError",
    "Communicator",
    "Costs",
    "ElasticBSP",
    "Full",
    "GroupInfo",
    "Hop",
    "HopStatistics",
    "Hybrid",
    "Majority",
    "MindFlayer",
    "MismatchError",
    "NeighborAveraging",
    "NotifyAck",
    "PairwiseAveraging",
    "PairwiseStatistics",
    "ParameterServer",
    "PartialAllreduce",
    "PartialReduce",
    "PartialRequest",
    "Policy",
    "PunctualGroups",
    "PushInfo",
    "PushRequest",
    "PushSum",
    "Quorum",
    "RandomGroups",
    "RankFailedError",
    "Rennala",
    "Rescaled",
    "Ringleader",
    "Ringmaster",
    "Round",
    "RoundInfo",
    "ScheduleError",
    "ServerStatistics",
    "Skip",
    "SmartGroups",
    "Solo",
    "StallError",
    "Standard",
    "StaticGroups",
    "TokenQueue",
    "Topology",
    "TransportError",
    "Update",
    "UpdateQueue",
    "WorkerStatistics",
    "__version__",
    "flatten",
    "hop",
    "topology",
    "wait_all",
    "wait_any",
    "zipline",
]


def __getattr__(name: str) -> object:
    if name in ("Round", "RoundInfo"):
        from .support.native import core

        return getattr(core, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
