"""Makes the models of all ranks that have not left equal: the exact mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array

__all__ = ["Equalizer"]

LONGEST_CHUNK = 64 << 10
"""Elements that are averaged at a time: the memory it takes, on a node, is some chunks for each rank."""


class Equalizer:
    """Averages chunk after chunk in rounds of all ranks; a rank that has closed it counts as arrived, and has no part.

    Every rank calls `average` as often. After an error in it a rank can call it no more.
    """

    def __init__(self, context: Context, *, count: int, dtype: np.dtype[Any], name: str, deadline: Deadline) -> None:
        """Make it for arrays of `count` elements; collective."""
        from ..support.native import core

        self._count = count
        self._chunk = np.zeros(min(max(count, 1), LONGEST_CHUNK), dtype)
        self._name = name
        self._failed = False
        self._rounds: _core.PartialAllreduce = core.PartialAllreduce(
            context.engine,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            default_timeout=context.timeout,
            shape=self._chunk.shape,
            dtype=dtype,
            dtype_name=dtype.name,
            convert=np.asarray,
            writable=np.asarray,
            op="AVG",
            policy="full",
            name=f"{name}.equalize",
        )

    def average(self, read: Callable[[], Array], assign: Callable[[Array], None], deadline: Deadline) -> None:
        """Replace what `read` returns by the mean over ranks, with `assign`; collective.

        All ranks have called it before one reads, and all have assigned before one returns.
        """
        if self._failed:
            raise RuntimeError(
                f"{self._name}: unusable for equalize: an earlier call ended by an error; close() it on all ranks"
            )
        self._failed = True
        self._meet(deadline)
        values = read()
        for first in range(0, self._count, self._chunk.size):
            part = values[first : first + self._chunk.size]
            self._chunk[: part.size] = part
            self._meet(deadline)
            part[:] = self._rounds.result[: part.size]
        assign(values)
        self._meet(deadline)
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether a call has ended by an error."""
        return self._failed

    def close(self) -> None:
        """Leave for good, without waiting."""
        self._rounds.close()

    def abort(self) -> None:
        """Leave at once."""
        self._rounds.abort()

    def _meet(self, deadline: Deadline) -> None:
        self._rounds.contribute_and_wait(self._chunk, deadline.remaining())
