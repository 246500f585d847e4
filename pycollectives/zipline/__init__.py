"""When to impose the next barrier: ZipLine of ElasticBSP, and what it is compared with. Pure: any size, no MPI.

Given when each worker will end its next iterations, find the earliest window of least length that has a point of every
worker. At its end all workers are synchronised, and its length is how long the first one waits.
"""

from __future__ import annotations

from .algorithms import full_grid_scan, grid_scan, naive, zipline, zipline_linear, zipline_opt, zipline_opt_bs
from .barrier import Barrier
from .files import read, write
from .generator import generate
from .incremental import Incremental

__all__ = [
    "Barrier",
    "Incremental",
    "full_grid_scan",
    "generate",
    "grid_scan",
    "naive",
    "read",
    "write",
    "zipline",
    "zipline_linear",
    "zipline_opt",
    "zipline_opt_bs",
]
