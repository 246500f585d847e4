"""Collectives that do not wait for stragglers, for MPI programs in Python.

Importing this package does not start MPI. The first `Communicator`, or the first use of `RoundInfo`, loads the
extension and `mpi4py.MPI`. The first use of `pycollectives.torch` loads PyTorch.

>>> import numpy as np, pycollectives as pc
>>> from mpi4py import MPI
>>> with pc.Communicator(MPI.COMM_SELF) as comm:
...     ar = comm.partial_allreduce(np.zeros(2), op=MPI.SUM, policy="majority")
...     info = ar.contribute(np.ones(2)).wait(timeout=30.0)
...     print(ar.result)
[1. 1.]
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import extend_path
from typing import TYPE_CHECKING

# In the source tree, Python finds the sources here, and the extension in the installed package.
__path__ = extend_path(__path__, __name__)

from . import groups, hop, policies, servers, topology, zipline
from .communicator import Communicator
from .counter.loop import until
from .hop.collective import Hop
from .mpi_api import Allreduce_init, PartialRequest
from .neighbor_averaging.d_psgd import NeighborAveraging
from .neighbor_averaging.pairwise import PairwiseAveraging
from .neighbor_averaging.push_sum import PushSum
from .partial_allreduce.collective import PartialAllreduce
from .partial_reduce.collective import GroupInfo, PartialReduce
from .policies import Full, Majority, Quorum, Solo
from .request import Request, wait_all, wait_any
from .servers.collective import ParameterServer
from .servers.statistics import PushInfo
from .support.costs import Costs
from .support.errors import ClosedError, MismatchError, RankFailedError, ScheduleError, StallError, TransportError
from .support.flattening import flatten
from .support.operations import AVG
from .support.step_timer import StepTimer

try:
    from ._version import version as __version__
except ImportError:  # a source tree that was not built
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from . import torch
    from ._core import RoundInfo

__all__ = [
    "AVG",
    "Allreduce_init",
    "ClosedError",
    "Communicator",
    "Costs",
    "Full",
    "GroupInfo",
    "Hop",
    "Majority",
    "MismatchError",
    "NeighborAveraging",
    "PairwiseAveraging",
    "ParameterServer",
    "PartialAllreduce",
    "PartialReduce",
    "PartialRequest",
    "PushInfo",
    "PushSum",
    "Quorum",
    "RankFailedError",
    "Request",
    "RoundInfo",
    "ScheduleError",
    "Solo",
    "StallError",
    "StepTimer",
    "TransportError",
    "__version__",
    "flatten",
    "get_include",
    "groups",
    "hop",
    "policies",
    "servers",
    "topology",
    "torch",
    "until",
    "wait_all",
    "wait_any",
    "zipline",
]


def get_include() -> str:
    """Return the folder of `pycollectives.h`, for the include path of C, C++ and Cython builds.

    >>> import pycollectives as pc
    >>> pc.get_include().endswith("pycollectives/include")
    True
    """
    return str(Path(__file__).resolve().parent / "include")


def __getattr__(name: str) -> object:
    if name == "RoundInfo":
        from .support.native import core

        return core.RoundInfo
    if name == "torch":  # loads PyTorch
        return import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
