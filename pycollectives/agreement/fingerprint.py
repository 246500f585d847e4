"""The fingerprint of a buffer: a hash by which ranks compare their data without sending it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..support import buffers

if TYPE_CHECKING:
    from ..collective import Creator
    from ..support.typing import Array, BufferSpec


@dataclass(frozen=True)
class Fingerprint:
    """Element type, shape and a hash of the bits of a buffer: equal for equal buffers, and in practice only then."""

    dtype: str
    shape: tuple[int, ...]
    bits: str

    @classmethod
    def of(cls, buffer: object) -> Fingerprint:
        """Return the fingerprint of a buffer, or of a specification such as `[buffer, count, type]`."""
        array = buffers.array_of(buffer)
        if array.dtype.hasobject:
            raise TypeError(f"expected elements without Python objects, got {array.dtype}")
        return cls(str(array.dtype), array.shape, hash_of_bits(array))

    def signature(self) -> dict[str, str | int | None]:
        """Return a hash of all fields, since the type's name may be long, in the form of a call's arguments."""
        return {"fingerprint": hashlib.blake2b(repr(self).encode(), digest_size=16).hexdigest()}


def hash_of_bits(array: Array) -> str:
    """Return a hash of the bits of a C-contiguous array, without copying it."""
    flat = np.asarray(array).reshape(-1)
    return hashlib.blake2b(flat.view(np.uint8).data, digest_size=16).hexdigest()


def is_same_on_all_ranks(comm: Creator, x: BufferSpec, *, timeout: float | None = None) -> bool:
    """Return True if a buffer has the same element type, shape and bits on all ranks; collective.

    Use it in training loops to check that the replicas of a model are equal. Ranks send only a hash, which one core
    computes at about 1 GB/s. Every rank waits for all others, as in a barrier: `flush` open partial allreduces first.

    Parameters
    ----------
    x
        C-contiguous host memory of any shape and element type: a NumPy array, an object that exports PEP 3118 or
        DLPack, or `[buffer, count, type]`, whose shape is its count. Bits are compared: 0.0 and -0.0 differ, and NaNs
        are equal if their bits are.
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit.

    Returns
    -------
    bool
        The same value on every rank.

    Raises
    ------
    ValueError, TypeError, BufferError
        The buffer of this rank is refused. The other ranks raise `MismatchError`.
    MismatchError
        Another rank's buffer is refused, or another rank makes a different collective call.
    RuntimeError
        This thread has contributed to a partial allreduce without flushing it, so that ranks could deadlock.
    StallError
        Some ranks do not make this call in time. No collective can be made on this communicator afterwards.
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
    if comm._context.membership is not None:
        membership = comm._context.membership
        return membership.is_same("is_same_on_all_ranks", lambda: repr(Fingerprint.of(x)).encode(), timeout)
    with comm._context.limited(timeout):
        _, replies = comm._context.rendezvous.share("is_same_on_all_ranks", lambda: Fingerprint.of(x))
    return all(reply == replies[0] for reply in replies)
