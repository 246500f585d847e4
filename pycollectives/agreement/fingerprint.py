"""The fingerprint of a buffer: a hash by which ranks compare what they hold, which is not sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..support import buffers

if TYPE_CHECKING:
    from ..collective import Creator
    from ..support.typing import Array, BufferSpec

__all__ = ["Fingerprint", "hash_of_bits", "is_same_on_all_ranks"]


@dataclass(frozen=True)
class Fingerprint:
    """Element type, shape and a hash of the bits of a buffer: equal if, and practically only if, all three are."""

    dtype: str
    shape: tuple[int, ...]
    bits: str

    @classmethod
    def of(cls, buffer: object) -> Fingerprint:
        """Return that of a buffer, or of a specification such as `[buffer, count, type]`.

        Raises
        ------
        TypeError, BufferError, ValueError
            As `buffers.array_of`; `TypeError` also if it holds Python objects, which are addresses.
        """
        array = buffers.array_of(buffer)
        if array.dtype.hasobject:
            raise TypeError(f"expected elements without Python objects in them, got {array.dtype}")
        return cls(str(array.dtype), array.shape, hash_of_bits(array))

    def signature(self) -> dict[str, str | int | None]:
        """Return what is compared, in the form of a call's arguments: one hash, however long the type's name is."""
        return {"fingerprint": hashlib.blake2b(repr(self).encode(), digest_size=16).hexdigest()}


def hash_of_bits(array: Array) -> str:
    """Return a hash of the bits of a C-contiguous array, which is read where it is."""
    flat = np.asarray(array).reshape(-1)
    return hashlib.blake2b(flat.view(np.uint8).data, digest_size=16).hexdigest()


def is_same_on_all_ranks(comm: Creator, x: BufferSpec, *, timeout: float | None = None) -> bool:
    """Whether a buffer is the same on all ranks: element type, shape and bits; collective.

    For training loops: whether the replicas of a model agree. Only a hash is sent; it is computed where the data
    is, by one core at about 1 GB/s. All ranks wait for all, as in a barrier: before it, `flush` the partial
    allreduces that are open.

    Parameters
    ----------
    x
        C-contiguous host memory of any shape and element type: a NumPy array or anything that exports PEP 3118 or
        DLPack, or `[buffer, count, type]`, whose shape is its count. Bits are compared: 0.0 and -0.0 differ, a NaN
        is the same as one of the same bits.
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit.

    Returns
    -------
    bool
        The same on every rank.

    Raises
    ------
    ValueError, TypeError, BufferError
        The buffer is refused: on this rank. The others raise `MismatchError`.
    MismatchError
        Another rank's buffer was refused, or another rank makes another collective call.
    RuntimeError
        A partial allreduce on which this thread has contributed is not flushed: ranks could wait for each other.
    StallError
        Some ranks do not call it in time; no collective can be made on it afterwards.
    ClosedError
        The communicator is closed.

    >>> import numpy as np
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     weights = np.arange(3.0)
    ...     equal = comm.is_same_on_all_ranks(weights)
    ...     weights[1] += comm.rank
    ...     return equal, comm.is_same_on_all_ranks(weights)
    >>> run_ranks(2, program)
    [(True, False), (True, False)]
    """
    comm._context.check_flushed("is_same_on_all_ranks")
    with comm._context.limited(timeout):
        _, replies = comm._context.rendezvous.share("is_same_on_all_ranks", lambda: Fingerprint.of(x))
    return all(reply == replies[0] for reply in replies)
