"""Statistics of the last step of an `EagerOptimizer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import RoundInfo
    from .averaging import GradientAverager


class StepStatistics:
    """Means over the buckets of an optimizer."""

    _gradients: GradientAverager

    @property
    def rounds(self) -> tuple[RoundInfo, ...]:
        """The `RoundInfo` of each bucket's round in the last step."""
        return self._gradients.rounds

    @property
    def mean_active(self) -> float:
        """The number of ranks with fresh gradients, averaged over `rounds`."""
        return _mean([info.active for info in self.rounds])

    @property
    def mean_late(self) -> float:
        """The share of buckets, 0 to 1, whose result in the last step lacks this rank's gradients, which were late."""
        return _mean([bucket.late for bucket in self._gradients.buckets])

    @property
    def mean_missed(self) -> float:
        """The number of missed rounds before the round of the last step, averaged over buckets."""
        return _mean([bucket.missed for bucket in self._gradients.buckets])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
