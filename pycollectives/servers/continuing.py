"""The parameter server on a communicator with `on_failure="continue"`.

A dead worker is excluded. A survivor on a dead server's node reads the server's shard from the node's memory. If no
rank survives there, the newest copy that a survivor has pulled replaces the shard. Each worker keeps its newest pushes,
and repeats the pushes that the weights do not include.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..support.buffers import as_bytes_exporter
from ..support.errors import RankFailedError, StallError
from .shards import Layout, Part, Resumption, SourceState, resumption
from .sync import EAMSGD
from .update_thread import UpdateThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .arguments import ParameterServerArguments

SETTLE_S = 20.0
"""Time limit for survivors to complete updates of shared weights."""
MOST_UNCOPIED = 8
"""The most pushes kept after their updates, because no copy of the weights includes them."""


class Push:
    """A push that the weights may not include: its number, its values, and its outcome."""

    def __init__(self, values: Array | None) -> None:
        """Keep the pushed values; None for a trial that was given up."""
        self.values = values
        self.clock = 0  # the number; 0 until the engine has the push
        self.released: int | None = None  # the version of the weights at its release
        self.used = True  # an update includes it, or may include it


class Source(NamedTuple):
    """One of the engine's former collectives; shards are read from its memory."""

    core: _core.ParameterServer
    epoch: int
    members: tuple[int, ...]
    layout: Layout
    parts: list[Part]

    def state(self, lost: set[int]) -> SourceState:
        """Complete the updates that have begun, without the lost ranks, and return the state of the shards."""
        self.core.settle([self.members.index(rank) for rank in lost if rank in self.members], timeout=SETTLE_S)
        shards, core = self.core.included(), self.core
        return SourceState(self.epoch, self.layout, self.parts, core.bounds, core.arrays, shards)


class ContinuingServer(Continuing["ParameterServerArguments", "_core.ParameterServer"]):
    """Calls the engine's parameter server, and recovers if a rank has died."""

    def __init__(
        self,
        context: Context,
        arguments: ParameterServerArguments,
        deadline: Deadline,
        *,
        weights: Array,
        call: Callable[..., None] | None,
    ) -> None:
        """Make the engine's parameter server (collective). `call` replaces an update rule."""
        self._given = arguments  # with the numbers of all ranks
        self._weights = weights
        self._call = call
        self._resumption: Resumption | None = None
        self._arrays: Array | None = None  # during a recovery: the weights and states of this rank's shards
        self._sources: list[Source] = []
        self._lost: set[int] = set()  # since the sources were made
        self._resumed_epoch = -1  # in which this rank may have pushed
        self._pushes: deque[Push] = deque()
        self._free_copies: list[Array] = []
        self._unpulled: Push | None = None  # weights whose average has not been pulled
        self._clock = 0
        self._version = 0
        self._outcome = (0, 0, 0, False)
        self._is_suspended = False
        self._reads_copies = False  # whether shards are on other nodes
        self._pulled = weights  # then a copy
        self._pulled_version = -1
        self._waited = 0.0  # in former collectives
        self._is_broken = False  # the update function has failed
        super().__init__(context, arguments, deadline)
        if self._core is not None:
            self._resumed_epoch = self._epoch
            if self._reads_copies:
                self._pulled = np.empty_like(weights)
                self._core.pull(as_bytes_exporter(self._pulled), timeout=seconds_of(deadline))
                self._pulled_version = 0

    def _made_for_members(self, deadline: Deadline) -> _core.ParameterServer:
        from ..support.native import core

        place, resumption = self._members.index, self._resumption
        layout = self._first_layout() if resumption is None else resumption.layout
        options = self._given.for_engine(layout.workers) | {
            "workers": [place(rank) for rank in layout.workers],
            "servers": [place(rank) for rank in layout.servers],
            "direct": layout.direct,
            "recoverable": True,
        }
        made = core.ParameterServer(
            self._context.engine,
            weights=as_bytes_exporter(self._weights) if resumption is None else self._arrays,
            call=self._call,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            resumed=None if resumption is None else resumption.for_engine(self._version),
            **options,
        )
        if (calls := made.update_calls) is not None:
            self._context.when_closed(UpdateThread(calls, self.name).check)
        self._layout = layout
        whole = Part(0, self._given.initial.buffer.count, [0] * len(layout.workers))
        self._parts = [whole] if resumption is None else resumption.parts
        self._reads_copies = any(shard is None for shard in made.included())
        return made

    def _first_layout(self) -> Layout:
        """Return the layout before the first call, without ranks that have already died."""
        members, nodes, given = self._membership.members, list(self._context.nodes), self._given
        first = tuple(members[nodes.index(node)] for node in sorted(set(nodes)))
        servers = first if given.servers.by_node else given.servers.ranks
        every = Layout(given.workers, servers, given.servers.direct)
        return every.among(members, is_one_node=len(first) == 1)

    @property
    def servers(self) -> tuple[int, ...]:
        return () if self._layout.direct else self._layout.servers

    # ------------------------------------------------------------------------------------------------ workers

    def push(self, gradient: Array, *, timeout: float | None = None) -> int:
        deadline, push = self.deadline(timeout), self._copied(gradient)

        def action() -> int:
            core = self._side(deadline)
            if push.clock == 0:
                self._hand_over(push, core, lambda: core.push(push.values, timeout=seconds_of(deadline)))
            return push.clock

        return self._run(action, deadline)

    def give_up(self, *, timeout: float | None = None) -> int:
        deadline, push = self.deadline(timeout), Push(None)

        def action() -> int:
            core = self._side(deadline)
            if push.clock == 0:
                self._hand_over(push, core, lambda: core.give_up(timeout=seconds_of(deadline)))
            return push.clock

        return self._run(action, deadline)

    def push_pull(self, gradient: Array, out: Array, *, timeout: float | None = None) -> None:
        deadline, push = self.deadline(timeout), self._copied(gradient)

        def action() -> None:
            core = self._side(deadline)
            if push.clock == 0:
                self._hand_over(push, core, lambda: core.push_pull(push.values, out, timeout=seconds_of(deadline)))
                self._note_pulled(core, out)
            else:
                self._pull(core, out, deadline)

        self._run(action, deadline)

    def _hand_over(self, push: Push, core: _core.ParameterServer, call: Callable[[], object]) -> None:
        before = core.clock
        try:
            call()
        finally:
            if core.clock > before:
                self._clock = push.clock = core.clock
                self._unpulled = push if isinstance(self._given.sync, EAMSGD) else None
                self._is_suspended = False
                self._pushes.append(push)
                while self._is_safe(self._pushes[0]):  # never the newest
                    values = self._pushes.popleft().values
                    self._free_copies += [] if values is None else [values]

    def _is_safe(self, push: Push) -> bool:
        """Whether the push need not be kept: no death can lose the weights that include it."""
        if push.released is None:
            return False
        if not push.used:
            return True
        has_copy = push.released <= self._pulled_version or len(self._pushes) > MOST_UNCOPIED
        return self._outcome[1] >= push.released + 2 and (has_copy or not self._reads_copies)

    def _copied(self, gradient: Array) -> Push:
        copy = self._free_copies.pop() if self._free_copies else np.empty_like(gradient)
        np.copyto(copy, gradient)
        return Push(copy)

    def wait(self, clock: int, *, timeout: float | None = None) -> None:
        deadline = self.deadline(timeout)

        def action() -> None:
            core = self._side(deadline)
            core.wait(clock, timeout=seconds_of(deadline))
            self._note_outcome(core)

        self._run(action, deadline)

    def test(self, clock: int) -> bool:

        def action() -> bool:
            core = self._notified_side
            self._push_ready(core)
            return core.test(clock)

        return self._run(action, self.deadline(None))

    def suspend(self, *, timeout: float | None = None) -> None:
        deadline = self.deadline(timeout)

        def action() -> None:
            self._side(deadline).suspend(timeout=seconds_of(deadline))
            self._is_suspended = True

        self._run(action, deadline)

    # ------------------------------------------------------------------------------------------------ all ranks

    def pull(self, out: Array, *, timeout: float | None = None, at_least: int = 0) -> None:
        deadline, epoch = self.deadline(timeout), self._epoch

        def action() -> None:
            core, least = self._side(deadline), at_least
            if least > 0 and self._epoch != epoch:  # the numbers may have changed
                least = core.server_statistics(timeout=seconds_of(deadline))["version"]
            self._pull(core, out, deadline, least)

        self._run(action, deadline)

    def _pull(self, core: _core.ParameterServer, out: Array, deadline: Deadline, at_least: int = 0) -> None:
        core.pull(out, timeout=seconds_of(deadline), at_least=at_least)
        push = self._unpulled
        if push is not None and self._resumption is not None and push.clock <= self._resumption.clock_of(self._rank):
            assert isinstance(self._given.sync, EAMSGD)  # its average was lost; `out` is the center
            assert push.values is not None
            own, center = self._as_weights(push.values), self._as_weights(out)
            center[...] = own + self._given.sync.alpha * (center - own)
        self._note_pulled(core, out)

    def _note_pulled(self, core: _core.ParameterServer, out: Array) -> None:
        self._unpulled = None
        self._note_outcome(core)
        if self._reads_copies:  # under EAMSGD a worker's average
            np.copyto(self._pulled, out)
            self._pulled_version = core.version

    def _note_outcome(self, core: _core.ParameterServer) -> None:
        outcome = core.outcome
        if outcome[0] == 0:
            return
        self._outcome = outcome
        for push in self._pushes:
            if push.clock <= outcome[0] and push.released is None:
                push.released, push.used = outcome[1], outcome[3] or push.clock < outcome[0]

    def server_statistics(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the engine's statistics, with the workers' original rank numbers."""
        deadline = self.deadline(timeout)

        def action() -> dict[str, Any]:
            counted = self._side(deadline).server_statistics(timeout=seconds_of(deadline))
            counted["workers"] = [(self._members[place], *rest) for place, *rest in counted["workers"]]
            return counted

        return self._run(action, deadline)

    # ------------------------------------------------------------------------------------------------ pushing again

    def _side(self, deadline: Deadline) -> _core.ParameterServer:
        """Return the engine's collective, after repeating all pushes that the weights did not include."""
        self._check_not_left()
        core = self._engine_side
        if self._is_broken:
            raise RuntimeError(f"{self.name!r}: the update function has raised an exception: the weights are unusable")
        while self._repeats(core):
            core.wait(core.clock, timeout=seconds_of(deadline))
            self._push_next(core, seconds_of(deadline))
        return core

    def _repeats(self, core: _core.ParameterServer) -> bool:
        """Whether pushes must be repeated because the engine's collective does not count them."""
        return core.clock < self._clock

    def _push_ready(self, core: _core.ParameterServer) -> None:
        """Repeat as many pushes as possible without waiting."""
        with contextlib.suppress(StallError):
            while self._repeats(core) and core.test(core.clock):
                self._push_next(core, 0)

    def _push_next(self, core: _core.ParameterServer, timeout: float) -> None:
        """Repeat the next push, after the release of the previous one; after the last push, suspend again if needed."""
        push = next(push for push in self._pushes if push.clock > core.clock)
        if push.values is None:
            core.give_up(timeout=timeout)
        else:
            core.push(push.values, timeout=timeout)
        if self._is_suspended and not self._repeats(core):
            core.suspend(timeout=timeout)

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        self._lost.update(lost)
        core, self._core = self._core, None
        if core is not None:
            self._stop(core)
        return {
            "left": self._left,
            "member": self._rank,
            "resumed": self._resumed_epoch,
            "sources": [source.state(self._lost)._asdict() for source in self._sources],
            "clock": self._clock,
            "kept": [(push.clock, push.released, push.used) for push in self._pushes],
            "pulled": self._pulled_version,
        }

    def _stop(self, core: _core.ParameterServer) -> None:
        """Keep the stopped collective for its memory, and the older collective in which this rank has pushed."""
        source = Source(core, self._epoch, self._members, self._layout, self._parts)
        self._sources = [source] if self._resumed_epoch == self._epoch else [*self._sources[:1], source]
        self._note_outcome(core)
        self._version = core.version
        self._waited += core.statistics()["waited"]

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. All ranks agree on the pushes in each shard, and new servers receive their shards."""
        members = self._membership.members
        is_one_node = len(set(self._context.nodes)) == 1
        found = resumption(states, members, self._given, is_one_node=is_one_node)
        if found is None:
            self._resumption = None
            return
        self._is_broken = found.is_broken
        self._resumption, self._arrays = found, np.zeros(found.bytes, np.uint8)
        for shard, holder in enumerate(found.holders):
            if holder.rank == self._rank:
                found.put(shard, self._arrays_of(shard, found), self._arrays)
        if found.moves:
            self._arrays = self.shared_bytes(self._arrays, f"the shards of {self.name!r}", deadline)
        included = found.clock_of(self._rank)
        for push in self._pushes:  # versions continue from an earlier one
            if push.clock > included:
                push.released = None
            elif push.released is not None:
                push.released = min(push.released, found.version)
        if self._membership.is_joining:
            self.begins_at = self._clock = included

    def _arrays_of(self, shard: int, found: Resumption) -> Array:
        """Return a shard's weights, as float32 or float64, and the states of the update rule, as bytes."""
        holder = found.holders[shard]
        if holder.is_in_memory:
            [core] = [source.core for source in self._sources if source.epoch == found.epoch]
            return np.frombuffer(core.arrays_of(shard), np.uint8)
        model = self._as_weights(self._pulled)
        first, end = found.bounds[shard : shard + 2]
        weights = model.reshape(-1)[first:end].astype(found.wide)
        states = np.zeros((found.arrays_per_shard - 1) * weights.size, found.wide)
        return np.concatenate([weights, states]).view(np.uint8)

    def _as_weights(self, array: Array) -> Array:
        """Return a view with the type of the weights; bfloat16 is passed as integers."""
        return array.view(self._given.initial.buffer.dtype)

    def resume(self) -> None:
        self._resumed_epoch = self._epoch
        for source in self._sources:
            if (calls := source.core.update_calls) is not None:
                calls.end()
        self._sources.clear()
        self._lost.clear()
        self._arrays = None
        if self._core is not None:
            with contextlib.suppress(RankFailedError, StallError):  # the next call reports it
                if self._repeats(self._core):
                    self._push_ready(self._core)
                elif self._is_suspended:
                    self._core.suspend(timeout=0)
        super().resume()

    def _numbering(self) -> str:
        return "."  # pushes and updates keep their numbers

    def remake(self, arguments: ParameterServerArguments, deadline: Deadline) -> None:
        """See `Recoverable.remake`. The collective keeps its original arguments."""
        del arguments
        self._core = self._made(deadline)

    # ------------------------------------------------------------------------------------------------ the state

    @property
    def clock(self) -> int:
        """The number of this rank's pushes."""
        return self._clock

    @property
    def version(self) -> int:
        return self._version if self._core is None else max(self._version, self._core.version)

    @property
    def outcome(self) -> tuple[int, int, int, bool]:
        if self._core is not None:
            self._note_outcome(self._core)
        return self._outcome

    def statistics(self) -> dict[str, Any]:
        """Return the engine's statistics, including the waiting time of former collectives."""
        counts = {"waited": 0.0, "memory_bytes": 0} if self._core is None else self._core.statistics()
        return counts | {"waited": counts["waited"] + self._waited}
