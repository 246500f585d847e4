"""Decide which ranks hold a parameter server's shards after a death, and which pushes the weights include.

Every survivor computes this from the states of all survivors, so that they agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.typing import Array
    from .arguments import ParameterServerArguments


class Layout(NamedTuple):
    """The workers and the ranks that hold the shards, as original rank numbers."""

    workers: tuple[int, ...]
    servers: tuple[int, ...]
    direct: bool

    def among(self, members: Sequence[int], *, is_one_node: bool, first: int | None = None) -> Layout:
        """Return the layout for the members. Other members replace dead servers, if enough are left.

        `first`: the member that has the weights if workers update them directly.
        """
        workers = tuple(rank for rank in self.workers if rank in members) or (members[0],)
        if self.direct and is_one_node:
            return Layout(workers, (members[0] if first is None else first,), direct=True)
        servers = [rank for rank in self.servers if rank in members]
        others = [rank for rank in members if rank not in servers]
        return Layout(workers, tuple(sorted(servers + others[: len(self.servers) - len(servers)])), direct=False)


class Part(NamedTuple):
    """The weights from element `first` to `end`, and the number of each worker's pushes that they include."""

    first: int
    end: int
    included: list[int]


class SourceState(NamedTuple):
    """The shards that a rank can read in the memory of a former collective."""

    epoch: int
    layout: Layout
    parts: list[Part]  # at its start
    bounds: list[int]  # of the shards, in elements
    arrays_per_shard: int  # the weights, and the states of the update rule
    shards: list[dict[str, Any] | None]  # None: on another node

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SourceState:
        """Return the state that another rank sent as plain values."""
        workers, servers, direct = values["layout"]
        layout = Layout(tuple(workers), tuple(servers), direct)
        return cls(**values | {"layout": layout, "parts": [Part(*part) for part in values["parts"]]})


class Holder(NamedTuple):
    """The rank from which a shard is taken, and the pushes that the shard includes."""

    rank: int
    is_in_memory: bool  # False: its copy of the newest weights, without the state of the update rule
    version: int
    used: list[int]  # by worker of the former layout


class Resumption(NamedTuple):
    """The weights, pushes and ranks of a parameter server that continues."""

    epoch: int  # of the former collective
    layout: Layout
    holders: list[Holder]  # by former shard
    bounds: list[int]  # of the former shards
    moves: bool  # whether shards move to other ranks
    version: int
    clocks: dict[int, int]  # pushes of each worker that all shards include
    parts: list[Part]
    wide: str  # the type of the weights on servers
    arrays_per_shard: int
    is_broken: bool  # the update function has failed

    @property
    def bytes(self) -> int:
        """The size of all weights and states of the update rule."""
        return self.arrays_per_shard * self.bounds[-1] * np.dtype(self.wide).itemsize

    def put(self, shard: int, values: Array, arrays: Array) -> None:
        """Copy a former shard's arrays, `values`, to their places in `arrays`, which has all shards."""
        first, end = self.bounds[shard : shard + 2]
        whole = arrays.view(self.wide).reshape(self.arrays_per_shard, self.bounds[-1])
        whole[:, first:end] = values.view(self.wide).reshape(self.arrays_per_shard, end - first)

    def clock_of(self, rank: int) -> int:
        """Return the number of a rank's pushes that all shards include; 0 if the rank is not a worker."""
        return self.clocks.get(rank, 0)

    def for_engine(self, given: int) -> dict[str, Any]:
        """Return the engine's argument `resumed`. `given`: the version that this rank received last."""
        return {
            "version": self.version,
            "given": min(given, self.version),
            "clocks": [self.clocks[rank] for rank in self.layout.workers],
            "parts": [tuple(part) for part in self.parts],
        }


def resumption(
    states: list[dict[str, Any]], members: Sequence[int], given: ParameterServerArguments, *, is_one_node: bool
) -> Resumption | None:
    """Return how the server continues, equal on all survivors; None if weights are initial and no survivor has pushed.

    `states`: the survivors' states (`ContinuingServer.read_state`). If a rank's creation failed, it has no `sources`.
    """
    epoch = max(state["resumed"] for state in states)
    sources = {
        state["member"]: source
        for state in states
        for source in map(SourceState.from_json, state["sources"])
        if source.epoch == epoch
    }
    former = next(iter(sources.values()))
    shards = range(len(former.layout.servers))
    holders = [_holder(shard, former, sources, states) for shard in shards]
    if all(state["clock"] == 0 for state in states) and all(holder.version == 0 for holder in holders):
        return None
    former_parts = _parts(former, holders)
    clocks = _clocks(former.layout, former_parts, states)
    of_all = former.layout._replace(workers=given.workers)  # newcomers too
    layout = of_all.among(members, is_one_node=is_one_node, first=holders[0].rank)
    place, survivors = former.layout.workers.index, set(clocks)
    slowest = min(clocks.values(), default=0)
    clocks = {rank: clocks.get(rank, slowest) for rank in layout.workers}
    parts = [
        part._replace(included=[part.included[place(r)] if r in survivors else clocks[r] for r in layout.workers])
        for part in former_parts
    ]
    seen = [shard for source in sources.values() for shard in source.shards if shard is not None]
    return Resumption(
        epoch=epoch,
        layout=layout,
        holders=holders,
        bounds=former.bounds,
        moves=[holder.rank for holder in holders] != list(layout.servers),
        version=min(holder.version for holder in holders),  # the weights on which repeated pushes were computed
        clocks=clocks,
        parts=parts,
        wide="float64" if given.initial.buffer.dtype.itemsize == 8 else "float32",
        arrays_per_shard=former.arrays_per_shard,
        is_broken=any(shard["is_broken"] for shard in seen),
    )


def _holder(shard: int, former: SourceState, sources: dict[int, SourceState], states: list[dict[str, Any]]) -> Holder:
    """Choose a rank for a shard: its server if alive, or a rank on that node, or the rank with the newest weights."""
    server = former.layout.servers[shard]
    readable = {rank: source.shards[shard] for rank, source in sources.items()}
    in_memory = {rank: found for rank, found in readable.items() if found is not None}
    newest = max(states, key=lambda state: state["pulled"])
    if in_memory:
        rank = server if server in in_memory else next(iter(in_memory))
        return Holder(rank, True, in_memory[rank]["version"], in_memory[rank]["used"])
    version = max(newest["pulled"], 0)
    of_rank = {state["member"]: state for state in states}
    used = [_included_in(of_rank[rank], version) if rank in of_rank else 0 for rank in former.layout.workers]
    return Holder(newest["member"], False, version, used)


def _included_in(state: dict[str, Any], version: int) -> int:
    """Return the number of a worker's newest push that the weights of `version` include."""
    if not state["kept"]:
        return int(state["clock"])
    newest = state["kept"][0][0] - 1
    for clock, released, _ in state["kept"]:
        if released is None or released > version:
            break
        newest = clock
    return int(newest)


def _parts(former: SourceState, holders: list[Holder]) -> list[Part]:
    """Return the parts of the weights; adjacent ranges that include the same pushes are one part."""
    parts: list[Part] = []
    for shard, holder in enumerate(holders):
        for part in former.parts:
            first, end = max(part.first, former.bounds[shard]), min(part.end, former.bounds[shard + 1])
            if first >= end:
                continue
            included = list(map(max, part.included, holder.used)) if holder.is_in_memory else holder.used
            if parts and parts[-1].included == included:
                first = parts.pop().first
            parts.append(Part(first, end, included))
    return parts


def _clocks(former: Layout, parts: list[Part], states: list[dict[str, Any]]) -> dict[int, int]:
    """Return, for each surviving worker, the number of the last push that it does not repeat."""
    clocks = {}
    for state in states:
        if state["member"] in former.workers:
            worker = former.workers.index(state["member"])
            least = min(part.included[worker] for part in parts)
            missing = [(released, used) for clock, released, used in state["kept"] if clock > least]
            while missing and missing[0][0] is not None and not missing[0][1]:
                missing.pop(0)  # it had no effect
            clocks[state["member"]] = state["clock"] - len(missing)
    return clocks
