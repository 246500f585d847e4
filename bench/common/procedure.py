"""How the calls of a cell are made: in blocks, each with a warm-up, under given delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from .barrier import Barrier

Floats = NDArray[np.float64]

BLOCKS = 4


@dataclass(frozen=True)
class Procedure:
    barrier: Barrier
    delays: Floats  # (calls, ranks) seconds, warm-up calls included
    inject: Callable[[float], None]
    iterations: int
    warmup: int  # of each block

    def blocks(self) -> list[int]:
        """Counted calls of each block."""
        return block_sizes(self.iterations)


def block_sizes(iterations: int) -> list[int]:
    blocks = min(BLOCKS, iterations)
    return [iterations // blocks + (block < iterations % blocks) for block in range(blocks)]


def calls_of(iterations: int, warmup: int) -> int:
    """Calls of a cell with its warm-up."""
    return iterations + warmup * len(block_sizes(iterations))
