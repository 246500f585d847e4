"""Makes the models of all ranks that have not left equal: the exact mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.errors import StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array

__all__ = ["Equalizer"]

LONGEST_CHUNK = 64 << 10
"""Elements that are averaged at a time: the memory it takes, on a node, is some chunks for each rank."""


class Equalizer:
    """Averages chunk after chunk in rounds of all ranks; a rank that has left counts as arrived, and has no part.

    Every rank calls `average` as often. After a `StallError` it goes on where it was when it is called again; after
    another error a rank can call it no more.
    """

    def __init__(self, context: Context, *, count: int, dtype: np.dtype[Any], name: str, deadline: Deadline) -> None:
        """Make it for arrays of `count` elements; collective."""
        from ..support.native import core

        self._count = count
        self._chunk = np.zeros(min(max(count, 1), LONGEST_CHUNK), dtype)
        self._name = name
        self._failed = False
        self._under_way: Iterator[_core.Round] | None = None
        self._round: _core.Round | None = None
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

    def average(self, read: Callable[[], Array], replace: Callable[[Array, Array], None], deadline: Deadline) -> Array:
        """Return the mean over ranks of what `read` returns, and `replace` the one by the other; collective.

        All ranks have called it before one reads, and all have replaced before one returns.
        """
        if self._failed:
            raise RuntimeError(
                f"{self._name}: unusable for equalize: an earlier call ended by an error; leave() it on all ranks"
            )
        try:
            if self._under_way is None:
                self._under_way = self._average(read, replace)
                self._round = next(self._under_way)
            while self._round is not None:
                self._round.wait(timeout=deadline.remaining())
                self._round = next(self._under_way, None)
        except StallError:
            raise
        except BaseException:
            self._failed = True
            raise
        self._under_way = None
        return self._mean

    def _average(self, read: Callable[[], Array], replace: Callable[[Array, Array], None]) -> Iterator[_core.Round]:
        """Yield each round that is to be waited for."""
        yield self._meet()
        before = read()
        self._mean = before.copy()
        for first in range(0, self._count, self._chunk.size):
            part = self._mean[first : first + self._chunk.size]
            self._chunk[: part.size] = part
            yield self._meet()
            part[:] = self._rounds.result[: part.size]
        replace(before, self._mean)
        yield self._meet()

    @property
    def failed(self) -> bool:
        """Whether a call has ended by an error after which it cannot go on."""
        return self._failed

    @property
    def is_under_way(self) -> bool:
        """Whether a call ran into its time limit, and is to be called again."""
        return self._under_way is not None

    def statistics(self) -> dict[str, Any]:
        """Return what its rounds have counted on this rank."""
        return self._rounds.statistics()

    def leave(self) -> None:
        """Take no further part; without waiting."""
        self._rounds.leave()

    def abort(self) -> None:
        """Leave at once."""
        self._rounds.abort()

    def _meet(self) -> _core.Round:
        return self._rounds.contribute(self._chunk)
