"""What `algorithm="auto"` means where every rank has a core: what costs least under LogGP, for given costs of messages.

The engine states for each schedule the chains of messages that can be the last to end (csrc/algorithms/cost.h), and one
function computes their time. The model answers as a table does (`selection.choice`). Whether ranks of a node use a
board, and in which segments, is the table's answer: no message is sent there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .choice import Choice, SelectionTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..support.costs import Costs

__all__ = ["CostModel", "activation_costs", "algorithm_names", "cheapest", "schedule_costs"]

HEADER_BYTES = 40
"""Of every message (csrc/engine/presence.h); 8 more for each 64 ranks, to say who contributes."""
ELEMENT_BYTES = 8


@dataclass(frozen=True)
class CostModel:
    """A table by computation.

    Attributes
    ----------
    costs
        Of messages between those that exchange them, the same on all ranks.
    table
        Answers what is not about messages.
    lists_members
        Whether messages say who contributes; a simulation of many ranks leaves that out.
    name
        What error messages call it.
    """

    costs: Costs
    table: SelectionTable
    lists_members: bool = True
    name: str = "cost model"

    def choose(self, ranks: int, nodes: int, nbytes: int, *, sparse: bool = False) -> Choice:
        """Return the best for `ranks` ranks on `nodes` nodes with `nbytes` bytes each."""
        board = self.table.choose(ranks, nodes, nbytes, sparse=sparse).board
        return self.complete(board, ranks, nodes, nbytes, sparse=sparse)

    def complete(
        self, board: bool, ranks: int, nodes: int, nbytes: int, *, schedule: str | None = None, sparse: bool = False
    ) -> Choice:
        """Return the best with a board or without, by `schedule` if there is one; arguments as for `choose`."""
        partners = nodes if board else ranks
        if schedule is None:
            members = ranks if self.lists_members else None
            schedule = cheapest(schedule_costs(self.costs, partners, nbytes, sparse=sparse, members=members))
        activation = cheapest(activation_costs(self.costs, partners))
        segment_bytes = self.table.complete(board, ranks, nodes, nbytes, schedule=schedule, sparse=sparse).segment_bytes
        return Choice(board, schedule if partners > 1 or not board else None, segment_bytes, activation)


def cheapest(costs: Mapping[str, float]) -> str:
    """Return the name with the lowest cost; of equals one without a number, or the first."""
    return min(costs, key=lambda name: (costs[name], ":" in name))


@functools.lru_cache(maxsize=4096)
def schedule_costs(
    costs: Costs, partners: int, nbytes: int, *, sparse: bool = False, members: int | None = None
) -> Mapping[str, float]:
    """Return the seconds of an allreduce among so many, by schedule.

    Parameters
    ----------
    costs, partners, nbytes
        Of messages; those that exchange them; of the data of each.
    sparse
        Only one contributes, so that nothing is reduced.
    members
        Ranks whose contributions messages list; None: they do not.
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
    """Return the seconds until a round that one of so many starts has reached all, and those if all start at once."""
    from ..support.native import core

    return core.costs_of_activation(
        partners,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        header_bytes=HEADER_BYTES,
    )


def algorithm_names() -> list[str]:
    """Return the schedules that the engine has, and "NAME:K" for each that takes a number."""
    from ..support.native import core

    names = []
    for algorithm in core.algorithms():
        names.append(str(algorithm["name"]))
        if algorithm["has_variants"]:
            names.append(f"{algorithm['name']}:K")
    return names
