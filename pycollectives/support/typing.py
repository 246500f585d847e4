"""Types of arguments, in mpi4py's terms.

The protocols and `BufferSpec` match `mpi4py.typing`, which cannot be used here because importing it starts MPI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias, Union

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mpi4py import MPI

Array: TypeAlias = npt.NDArray[Any]
"""Any NumPy array."""

Late: TypeAlias = Literal["accumulate", "replace", "drop"]
"""The use of data that is too late for a round: see `Communicator.partial_allreduce`."""

Missed: TypeAlias = Literal["latest", "sum"]
"""The result of a late call: the newest result, or the sum of all missed results."""

OnFailure: TypeAlias = Literal["raise", "continue"]
Respawn: TypeAlias = Literal[False, True, "background"]
Progress: TypeAlias = Literal["thread", "caller"]
"""How messages move while no call waits: by a thread of the process, or not at all."""


class SupportsBuffer(Protocol):
    """The buffer protocol, PEP 3118. Python 3.12 and later can check for it."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Export the memory."""


class SupportsDLPack(Protocol):
    """The DLPack protocol."""

    def __dlpack__(self, *, stream: Any | None = None) -> Any:
        """Export the memory as a capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the location of the memory: device type and number."""


class SupportsCAI(Protocol):
    """The CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, shape and type."""


Buffer: TypeAlias = SupportsBuffer | SupportsDLPack | SupportsCAI | npt.NDArray[Any] | np.generic
"""An object with memory of its own."""

TypeSpec: TypeAlias = Union["MPI.Datatype", str]
"""An MPI datatype or NumPy's name of one."""

BufferSpec: TypeAlias = (
    Buffer | tuple[Buffer, SupportsIndex] | tuple[Buffer, TypeSpec] | tuple[Buffer, SupportsIndex, TypeSpec] | list[Any]
)
"""A buffer, or as in mpi4py `[buffer, count]`, `[buffer, type]` or `[buffer, count, type]`."""

DType: TypeAlias = Union["npt.DTypeLike", "MPI.Datatype"]
"""An element type: NumPy's, a name of it ("float32", "bfloat16"), or an MPI datatype."""

Op: TypeAlias = Union["MPI.Op", str]
"""A reduction: one of MPI's that is predefined, such as `MPI.SUM`, except MINLOC, MAXLOC, REPLACE and NO_OP;
`pycollectives.AVG`; or the name of one, such as "SUM"."""

InPlace: TypeAlias = Union["MPI.InPlaceType", None]
"""`MPI.IN_PLACE`, or None for the same."""
