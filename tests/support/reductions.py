"""The reductions and element types to test if testing all of them would take long."""

from __future__ import annotations

from pycollectives import _testing
from pycollectives.support.buffers import DTYPE_NAMES
from pycollectives.support.operations import OP_NAMES

ONE_OF_EACH_KIND = ("float32", "int64", "uint16", "complex64", "bool")

PAIRS = [(op, dtype) for dtype in DTYPE_NAMES for op in OP_NAMES if _testing.is_defined(op, dtype)]
SOME_PAIRS = [(op, dtype) for op, dtype in PAIRS if op in ("SUM", "AVG") or dtype in ONE_OF_EACH_KIND]
"""Sums and averages of every type, and every reduction of one type of each kind."""
