"""Computes the exact mean of the models of all ranks that have not left, and gives each of them the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.errors import RankFailedError, StallError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array

LONGEST_CHUNK = 64 << 10
"""Elements that are averaged at a time. A node needs memory for several chunks per rank."""


class Equalizer:
    """Averages models chunk by chunk in rounds of all ranks. Ranks that have left are absent from the rounds.

    All ranks call `equalize` the same number of times. After a `StallError`, the next call continues. After any
    other error, this rank can no longer call `equalize`.
    """

    def __init__(
        self,
        context: Context,
        models: _core.PairwiseAveraging | _core.DevicePairwiseAveraging,
        *,
        count: int,
        name: str,
        deadline: Deadline,
    ) -> None:
        """Make an equalizer for models of `count` elements; collective."""
        self._models = models
        self._count = count
        self._chunk = np.zeros(min(max(count, 1), LONGEST_CHUNK), models.held_dtype_name)
        # this rank's model before and after the replacement by the mean, until all ranks have replaced theirs
        self.replaced: tuple[Array, Array] | None = None
        self._name = name
        self._failed = False
        self._under_way: Iterator[_core.Round] | None = None
        self._round: _core.Round | None = None
        self._rounds = context.full_rounds(self._chunk, "AVG", f"{name}.equalize", deadline)

    def equalize(self, deadline: Deadline) -> Array:
        """Replace each rank's model with the mean of all models, and return the mean in the engine's dtype; collective.

        No averages run during the call. No rank reads its model before all ranks have made the call, and no rank
        returns before all ranks have replaced theirs.
        """
        self._models.pause(timeout=deadline.remaining())
        try:
            return self._average(deadline)
        finally:
            if self._under_way is None or self._failed:
                self._models.resume()

    def _average(self, deadline: Deadline) -> Array:
        if self._failed:
            raise RuntimeError(
                f"{self._name}: unusable for equalize: an earlier call ended with an error; call leave() on all ranks"
            )
        try:
            if self._under_way is None:
                self._under_way = self._rounds_of_mean()
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

    def _rounds_of_mean(self) -> Iterator[_core.Round]:
        """Compute the mean, and yield each round for which the caller must wait."""
        yield self._meet()
        before = np.empty(self._count, self._chunk.dtype)
        self._models.read_kept(before)
        self._mean = before.copy()
        for first in range(0, self._count, self._chunk.size):
            part = self._mean[first : first + self._chunk.size]
            self._chunk[: part.size] = part
            yield self._meet()
            part[:] = self._rounds.result[: part.size]
        try:
            self._models.replace_held(before, self._mean)
        except RankFailedError:  # nothing was changed
            raise
        except BaseException:  # an interrupt, after the change
            self.replaced = before, self._mean
            raise
        self.replaced = before, self._mean
        yield self._meet()
        self.replaced = None

    @property
    def failed(self) -> bool:
        return self._failed

    def statistics_of_rounds(self) -> dict[str, Any]:
        return self._rounds.statistics()

    def leave(self) -> None:
        self._rounds.leave()

    def abort(self) -> None:
        self._rounds.abort()

    def _meet(self) -> _core.Round:
        return self._rounds.contribute(self._chunk)
