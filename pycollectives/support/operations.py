"""Reductions by name, and the element types for which they are defined.

Inside the package a reduction is one of the names below; mpi4py's operations are translated to them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

AVG: Final = "AVG"
"""The mean over the ranks that contributed. Integers are summed in 64 bits and divided toward zero."""

KINDS = {"f": "floats", "i": "integers", "c": "complex numbers", "b": "bool"}
"""Kinds of element types, by a letter, as messages name them."""

DEFINED = {
    "SUM": "fic",
    "PROD": "fic",
    "MIN": "fi",
    "MAX": "fi",
    AVG: "fic",
    "LAND": "ib",
    "LOR": "ib",
    "LXOR": "ib",
    "BAND": "i",
    "BOR": "i",
    "BXOR": "i",
}
"""The kinds for which each reduction is defined: as in MPI (MPI 4.1, section 6.9.2), and AVG as SUM."""

ON_DEVICE = {"f": ("SUM", AVG, "PROD", "MIN", "MAX"), "i": ("SUM", AVG, "PROD", "MIN", "MAX"), "c": ("SUM", AVG)}
"""The kinds for which CUDA kernels of a reduction exist."""

OP_NAMES = tuple(DEFINED)
MPI_NAMES = tuple(name for name in OP_NAMES if name != AVG)


def checked_op(op: object) -> str:
    """Return the name of a reduction: one of `OP_NAMES`. Strings may be in lower case."""
    expected = f"op: expected MPI's {', '.join(MPI_NAMES)}, pycollectives.AVG, or the name of one"
    if isinstance(op, str):
        if op.upper() not in OP_NAMES:
            raise ValueError(f"{expected}; got {op!r}")
        return op.upper()
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(op, module.Op):
        raise TypeError(f"{expected}; got {op!r}")
    for name in MPI_NAMES:
        if op == getattr(module, name):
            return name
    names = [f"MPI.{name}" for name, other in vars(module).items() if isinstance(other, module.Op) and op == other]
    raise ValueError(f"{expected}; got {names[0] if names else 'an operation made by MPI.Op.Create'}")


def checked_op_on(op: object, dtype: np.dtype[Any]) -> str:
    """Return the name of a reduction; TypeError if the reduction is not defined on `dtype`."""
    name = checked_op(op)
    kind = _kind_of(dtype)
    if kind not in DEFINED[name]:
        takes = ", ".join(KINDS[one] for one in DEFINED[name])
        hint = "; view the array as 'uint8' to count" if kind == "b" else ""
        raise TypeError(f"op: {name} is not defined on {dtype.name}: it takes {takes}{hint}")
    return name


def check_op_on_device(op: str, dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` if CUDA devices do not support the reduction `op` on `dtype`, as the host does."""
    kind = _kind_of(dtype)
    if op not in ON_DEVICE.get(kind, ()):
        takes = ", ".join(ON_DEVICE.get(kind, ON_DEVICE["f"]))
        raise ValueError(
            f"op: on a CUDA device expected {takes} of numbers, got {op} of {dtype.name}; copy the array to the host "
            "first"
        )


def _kind_of(dtype: np.dtype[Any]) -> str:
    return {"u": "i", "V": "f"}.get(dtype.kind, dtype.kind)  # bfloat16 has the kind V
