"""Five figures that summarize many samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Summary:
    """The figures in the unit of the samples, which is microseconds in the benchmarks."""

    min: float
    mean: float
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples: NDArray[np.float64]) -> Summary:
        p50, p99 = np.percentile(samples, [50, 99])
        return cls(float(samples.min()), float(samples.mean()), float(p50), float(p99), float(samples.max()))

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(self).items()}
