"""Find the best time for the next barrier: ZipLine of ElasticBSP and the algorithms it is compared with.

The inputs are the times at which each worker will end its next iterations. The result is the earliest of the shortest
windows that contain a point of every worker. All workers synchronize at the window's end; its length is the wait of the
first worker. The functions are pure: they need no MPI and work for any size.
"""

from __future__ import annotations

from .algorithms import full_grid_scan, grid_scan, naive, zipline, zipline_linear, zipline_opt, zipline_opt_bs
from .files import read, write
from .generator import generate
from .incremental import Incremental
from .rows import Barrier

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
