"""Rate `algorithm="auto"` where every rank has a core: compare its choice with all others in virtual time.

The simulator times the plans of all ranks, for every choice that could be best. The comparison therefore does not rely
on the cost model.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pycollectives.selection.model import cheapest, schedule_costs
from pycollectives.support.costs import PRESETS, Costs
from pycollectives.support.native import core

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RANKS = (4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 512, 1000, 1024, 4096, 16384, 65536)
BYTES = (8, 64, 512, 4096, 32768, 262144, 1048576, 4194304)
PRUNED = 1.25
"""Choices that cost more than this factor times the least, by the model, are not timed: `Cell.error` is smaller."""
ALL_TIMED = 24
"""Up to this number of ranks, all choices are timed."""


class Cell(NamedTuple):
    """A network, ranks and bytes, with times of the plans in seconds. `error`: the model's largest error."""

    network: str
    ranks: int
    nbytes: int
    chosen: str
    seconds: float
    best: str
    best_seconds: float
    timed: int
    error: float

    @property
    def ratio(self) -> float:
        """The time of the choice over the least time."""
        return self.seconds / self.best_seconds


def seconds_of(algorithm: str, ranks: int, nbytes: int, costs: Costs, activation: str = "") -> float:
    """Return the time of the plans; with an activation, of a whole round in which all ranks contribute at once."""
    count = max(1, min(core.parts_of_allreduce(algorithm, ranks), nbytes // 8))
    name = algorithm.partition(":")[0]
    doubles = name in ("recursive_doubling", "rabenseifner") and ranks & (ranks - 1) == 0
    alike = doubles or (name == "ring" and count == ranks)
    return core.time_of_plans(
        algorithm,
        ranks,
        count=count,
        element_bytes=nbytes / count,
        activation=activation,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        reduce_per_byte=costs.reduce_per_byte,
        one_for_all=alike and not activation,
    )


def cell(network: str, costs: Costs, ranks: int, nbytes: int) -> Cell:
    believed = schedule_costs(costs, ranks, nbytes)
    chosen = cheapest(believed)
    limit = float("inf") if ranks <= ALL_TIMED else PRUNED * believed[chosen]
    timed = {name: seconds_of(name, ranks, nbytes, costs) for name, cost in believed.items() if cost <= limit}
    best = cheapest(timed)
    error = max(max(timed[name] / believed[name], believed[name] / timed[name]) for name in timed)
    return Cell(network, ranks, nbytes, chosen, timed[chosen], best, timed[best], len(timed), error)


def cells(ranks: Sequence[int] = RANKS, sizes: Sequence[int] = BYTES) -> Iterator[Cell]:
    for network, costs in PRESETS.items():
        for size in ranks:
            for nbytes in sizes:
                yield cell(network, costs, size, nbytes)


def as_lines(found: Sequence[Cell]) -> str:
    return "".join(
        json.dumps({**one._asdict(), "ratio": round(one.ratio, 4), "error": round(one.error, 4)}) + "\n"
        for one in found
    )
