"""The fingerprint of a buffer: a hash by which ranks compare what they hold without sending it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..support import buffers

if TYPE_CHECKING:
    from ..support.typing import Array

__all__ = ["Fingerprint", "hash_of_bits"]


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
