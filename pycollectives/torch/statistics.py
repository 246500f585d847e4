"""What the last step of an `EagerOptimizer` was told of its rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import RoundInfo
    from .averaging import GradientAverager

__all__ = ["StepStatistics"]


class StepStatistics:
    """Means over the buckets of an optimizer."""

    _gradients: GradientAverager

    @property
    def rounds(self) -> tuple[RoundInfo, ...]:
        """The information that each bucket got on its round in the last step; see `RoundInfo`."""
        return self._gradients.rounds

    @property
    def mean_active(self) -> float:
        """The mean over `rounds` of how many ranks had fresh gradients."""
        return _mean([info.active for info in self.rounds])

    @property
    def mean_late(self) -> float:
        """The share of buckets whose result in the last step is without this rank's gradients: they came too late."""
        return _mean([bucket.late for bucket in self._gradients.buckets])

    @property
    def mean_missed(self) -> float:
        """The mean over buckets of how many rounds completed unseen before the one that the last step was given."""
        return _mean([bucket.missed for bucket in self._gradients.buckets])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
