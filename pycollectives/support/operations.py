"""Reductions, by name.

Inside the package a reduction is one of the names below; mpi4py's operations are translated to them.
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["AVG", "OP_NAMES", "checked_op"]

AVG: Final = "AVG"
"""The mean over the ranks that contributed. Integers are summed in int64 and divided towards zero."""

OP_NAMES = ("SUM", "PROD", "MIN", "MAX", AVG)


def checked_op(op: object) -> str:
    """Return the name of a reduction: one of `OP_NAMES`.

    Raises
    ------
    ValueError
        For another operation, such as one made by `MPI.Op.Create`.
    TypeError
        If it is no operation at all.
    """
    expected = f"op: expected MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX, pycollectives.AVG or one of {', '.join(OP_NAMES)}"
    if isinstance(op, str):
        if op not in OP_NAMES:
            raise ValueError(f"{expected}; got {op!r}")
        return op
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(op, module.Op):
        raise TypeError(f"{expected}; got {op!r}")
    for name in ("SUM", "PROD", "MIN", "MAX"):
        if op == getattr(module, name):
            return name
    names = [f"MPI.{name}" for name, other in vars(module).items() if isinstance(other, module.Op) and op == other]
    raise ValueError(f"{expected}; got {names[0] if names else 'an operation made by MPI.Op.Create'}")
