"""How `algorithm="auto"` chooses an algorithm if every rank has a core: the cheapest under LogGP, from message costs.

For each schedule, the engine lists the chains of messages that can end last (csrc/algorithms/cost.h), and a function
computes their times. The model has the interface of a table (`selection.choice`). A table still decides whether ranks
of a node use a board, which sends no messages, and its segment size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .choice import Choice, SelectionTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..support.costs import Costs

HEADER_BYTES = 40
"""Header of every message (csrc/engine/presence.h). Another 8 bytes for each 64 ranks list the contributors."""
ELEMENT_BYTES = 8


@dataclass(frozen=True)
class CostModel:
    """A selection table that computes its answers from message costs."""

    costs: Costs  # of messages, the same on all ranks
    table: SelectionTable  # for questions that are not about messages
    lists_members: bool = True  # whether messages list the contributors; False in simulations of many ranks
    name: str = "cost model"  # in error messages

    def choose(self, ranks: int, nodes: int, nbytes: int, *, sparse: bool = False) -> Choice:
        """Return the best choice for `ranks` ranks on `nodes` nodes with `nbytes` bytes each."""
        board = self.table.choose(ranks, nodes, nbytes, sparse=sparse).board
        return self.complete(board, ranks, nodes, nbytes, sparse=sparse)

    def complete(
        self, board: bool, ranks: int, nodes: int, nbytes: int, *, schedule: str | None = None, sparse: bool = False
    ) -> Choice:
        """Return the best choice with or without a board. `schedule` is used if given; the rest is as for `choose`."""
        partners = nodes if board else ranks
        best, activation = _choice(self.costs, partners, nbytes, sparse, ranks if self.lists_members else None)
        schedule = schedule or best
        if not board:
            return Choice(False, schedule, activation=activation)
        segment_bytes = self.table.complete(True, ranks, nodes, nbytes, schedule=schedule, sparse=sparse).segment_bytes
        return Choice(True, schedule if nodes > 1 else None, segment_bytes, activation)


@functools.lru_cache(maxsize=65536)
def _choice(costs: Costs, partners: int, nbytes: int, sparse: bool, members: int | None) -> tuple[str, str]:
    """Return the cheapest schedule and activation. The results are cached, because each `preduce` needs them."""
    schedule = cheapest(schedule_costs(costs, partners, nbytes, sparse=sparse, members=members))
    return schedule, cheapest(activation_costs(costs, partners))


def cheapest(costs: Mapping[str, float]) -> str:
    """Return the name with the lowest cost. Among equal costs, prefer a name without a number, then the first."""
    return min(costs, key=lambda name: (costs[name], ":" in name))


def schedule_costs(
    costs: Costs, partners: int, nbytes: int, *, sparse: bool = False, members: int | None = None
) -> Mapping[str, float]:
    """Return the seconds of an allreduce among `partners` ranks with `nbytes` bytes each, by schedule.

    If `sparse` is True, only one rank contributes, so that no data is reduced. Messages list which of `members` ranks
    have contributed; if `members` is None, they list no ranks.
    """
    from ..support.native import core

    return core.costs_of_allreduce(
        partners,
        -(-nbytes // ELEMENT_BYTES),
        ELEMENT_BYTES,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        reduce_per_byte=0.0 if sparse else costs.reduce_per_byte,
        header_bytes=HEADER_BYTES + (0 if members is None else 8 * -(-members // 64)),
    )


@functools.lru_cache(maxsize=1024)
def activation_costs(costs: Costs, partners: int) -> Mapping[str, float]:
    """Return the seconds of each activation: to reach all partners, plus the delay if all of them start it."""
    from ..support.native import core

    return core.costs_of_activation(
        partners,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        header_bytes=HEADER_BYTES,
    )


def algorithm_names() -> list[str]:
    """Return the names of the engine's schedules, and "NAME:K" for each that takes a number."""
    from ..support.native import core

    names = []
    for algorithm in core.algorithms():
        names.append(str(algorithm["name"]))
        if algorithm["has_variants"]:
            names.append(f"{algorithm['name']}:K")
    return names
