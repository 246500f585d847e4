"""Queues on a communicator with `on_failure="continue"`.

The queue treats a dead rank as one that has left. Between survivors, no token or update is lost or counted twice. Each
sender keeps copies of the updates that the owner may lack. After a death, the owner receives the missing updates.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..support.errors import ClosedError, RankFailedError, StallError
from .arguments import TokenQueueArguments, UpdateQueueArguments

if TYPE_CHECKING:
    from .. import _core
    from ..arguments import Arguments
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array

__all__ = ["ContinuingTokenQueue", "ContinuingUpdateQueue"]

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
CoreT = TypeVar("CoreT", bound="_core.TokenQueue | _core.UpdateQueue")


NOT_DONE = (StallError, ClosedError, RankFailedError, ValueError, TypeError, RuntimeError)
"""Engine errors after which a call has done nothing. Any other error is a signal handler's, raised at any moment."""


class ContinuingQueue(Continuing[ArgumentsT, CoreT]):
    """Base class of the queues in this module."""

    def __init__(self, context: Context, arguments: ArgumentsT, deadline: Deadline) -> None:
        self._waited = 0.0  # seconds in former collectives
        super().__init__(context, arguments, deadline)

    def remake(self, arguments: ArgumentsT, deadline: Deadline) -> None:
        """See `Recoverable.remake`. The queue keeps its arguments."""
        del arguments
        super().remake(self._arguments, deadline)

    def _stop(self) -> None:
        """Drop the engine's collective. The recovery makes a new one."""
        if self._core is not None:
            self._waited += self._core.statistics()["waited"]
            self._core = None

    def _unused(self, deadline: Deadline) -> Any:
        """Make an engine's collective that moves no data, for a queue that has lost its owner or taker."""
        from ..support.native import core

        return core.UpdateQueue(
            self._context.engine,
            owner=0,
            senders=[],
            dtype_name="uint8",
            count=0,
            max_ig=1,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            name=self._arguments.name,
        )

    def _is_alive(self, rank: int) -> bool:
        return rank in self._members

    def statistics(self) -> dict[str, Any]:
        counts = {"waited": 0.0, "memory_bytes": 0} if self._core is None else self._core.statistics()
        return counts | {"waited": counts["waited"] + self._waited}


class ContinuingTokenQueue(ContinuingQueue[TokenQueueArguments, "_core.TokenQueue"]):
    """A token queue of the engine, with calls that recover if a rank has died."""

    _tokens: int | None = None  # initial tokens of the next engine's queue
    _enqueued = 0  # by this rank
    _dequeued = 0

    @property
    def _is_whole(self) -> bool:
        return self._is_alive(self._arguments.owner) and self._is_alive(self._arguments.taker)

    def _made_for_members(self, deadline: Deadline) -> _core.TokenQueue:
        from ..support.native import core

        if self._tokens is None:
            self._tokens = self._arguments.tokens
        if not self._is_whole:
            return self._unused(deadline)  # type: ignore[no-any-return]
        return core.TokenQueue(
            self._context.engine,
            owner=self._members.index(self._arguments.owner),
            taker=self._members.index(self._arguments.taker),
            tokens=self._tokens,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            name=self._arguments.name,
        )

    def enqueue(self, tokens: int) -> None:
        """Enqueue tokens. If the taker is dead, they are lost."""

        def action() -> None:
            self._check_not_left()
            core = self._notified_side
            if self._is_whole:
                self._enqueued += tokens  # before a signal handler can raise
                try:
                    core.enqueue(tokens)
                except NOT_DONE:
                    self._enqueued -= tokens
                    raise

        self._run(action, self.deadline(None))

    def dequeue(self, tokens: int, *, timeout: float | None = None) -> None:
        """Dequeue tokens. If the owner is dead, return without waiting."""
        deadline = self.deadline(timeout)

        def action() -> None:
            self._check_not_left()
            core = self._notified_side
            if self._is_whole:
                self._dequeued += tokens
                try:
                    core.dequeue(tokens, timeout=seconds_of(deadline))
                except NOT_DONE:
                    self._dequeued -= tokens
                    raise

        self._run(action, deadline)

    def size(self) -> int:
        """Return the number of tokens. If the owner or the taker is dead, return the number before the death."""
        core = self._core
        if core is None or not self._is_whole:
            assert self._tokens is not None
            return self._tokens
        return core.size()

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._core is not None and self._is_whole and self._rank in (self._arguments.owner, self._arguments.taker):
            self._tokens = self._core.size()  # for `size`, if the other one is dead
        self._stop()
        return {"left": self._left, "change": self._enqueued - self._dequeued}

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        del deadline
        members = self._membership.members
        if self._arguments.owner in members and self._arguments.taker in members:
            # Not below 0, because an owner that has left provides any number.
            self._tokens = max(0, self._arguments.tokens + sum(state["change"] for state in states))


class Tag(NamedTuple):
    """An update's iteration, and its number among the sender's updates of this iteration, counted from 1.

    The tags of a sender's updates ascend.
    """

    iteration: int
    number: int


class Kept(NamedTuple):
    """An update that its sender keeps for a recovery, or that its owner has not yet dequeued."""

    tag: Tag
    sender: int
    values: Array  # bytes


class ContinuingUpdateQueue(ContinuingQueue[UpdateQueueArguments, "_core.UpdateQueue"]):
    """An update queue of the engine, with calls that recover if a rank has died.

    Each sender has max_ig + 1 slots in the engine's queue, for one update each. While a sender enqueues an update, the
    owner may not have dequeued the slot's previous update, but all earlier ones have left the slot. A sender therefore
    keeps two updates for each slot, and the owner notes the newest dequeued update.
    """

    def __init__(self, context: Context, arguments: UpdateQueueArguments, deadline: Deadline) -> None:
        self._slots = arguments.max_ig + 1
        self._newest: dict[int, Tag] = {}  # on a sender, by slot
        self._kept: dict[int, list[Kept]] = {}  # on a sender, by slot: at most two, ascending
        self._last = 0  # iteration on a sender
        self._dequeued: dict[tuple[int, int], Tag] = {}  # on the owner, by sender and slot
        self._received: list[Kept] = []  # on the owner: received, but not yet dequeued by the caller
        self._oldest = 0  # on the owner: updates of earlier iterations are stale
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.UpdateQueue:
        from ..support.native import core

        given = self._arguments
        if not self._is_alive(given.owner):
            return self._unused(deadline)  # type: ignore[no-any-return]
        return core.UpdateQueue(
            self._context.engine,
            owner=self._members.index(given.owner),
            senders=[self._members.index(rank) for rank in given.senders if self._is_alive(rank)],
            dtype_name=given.like.buffer.dtype.name,
            count=given.like.buffer.count,
            max_ig=given.max_ig,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            name=given.name,
        )

    # ------------------------------------------------------------------------------------------------ a sender

    def enqueue(self, update: Array, iteration: int, *, timeout: float | None = None) -> None:
        """Enqueue an update. If the owner is dead, the update is discarded."""
        deadline = self.deadline(timeout)
        if iteration < self._last:
            raise ValueError(
                f"{self.name}: iteration: expected at least {self._last}, this rank's last iteration, got {iteration}; "
                f"with on_failure='continue', do not enqueue for an earlier iteration"
            )

        def action() -> None:
            self._check_not_left()
            core = self._notified_side
            if not self._is_alive(self._arguments.owner):
                return
            slot = iteration % self._slots
            newest, before = self._newest.get(slot), self._kept.get(slot, [])
            tag = Tag(iteration, newest.number + 1 if newest is not None and newest.iteration == iteration else 1)
            kept = Kept(tag, self._rank, update.reshape(-1).view(np.uint8).copy())
            self._kept[slot] = [*before[-1:], kept]  # before a signal handler can raise
            try:
                core.enqueue(update, iteration, timeout=seconds_of(deadline))
            except NOT_DONE:
                self._kept[slot] = before
                raise
            self._last, self._newest[slot] = iteration, tag

        self._run(action, deadline)

    @property
    def _all_kept(self) -> list[Kept]:
        return [each for slot in self._kept.values() for each in slot]

    # ------------------------------------------------------------------------------------------------ the owner

    def dequeue(
        self, m: int, iteration: int | None, sender: int | None, *, timeout: float | None = None
    ) -> list[tuple[Array, int, int]]:
        """Dequeue updates. If a sender has died, its updates that this rank has not received are lost."""
        deadline = self.deadline(timeout)

        def action() -> list[tuple[Array, int, int]]:
            self._check_not_left()
            core = self._notified_side
            core.dequeue(0, iteration, None, timeout=0.0)  # discards stale updates, also if this call stalls
            self._oldest = max(self._oldest, iteration or 0)
            self._received = [each for each in self._received if each.tag.iteration >= self._oldest]
            here = sum(_matches(each, iteration, sender) for each in self._received)
            self._receive_missing(core, m, here, iteration, sender, deadline)
            ready = [each for each in self._received if _matches(each, iteration, sender)]
            ready.sort(key=attrgetter("tag.iteration", "sender", "tag.number"))
            taken = ready[:m]
            self._received = [each for each in self._received if all(each is not one for one in taken)]
            return [(each.values, each.tag.iteration, each.sender) for each in taken]

        return self._run(action, deadline)

    def _receive_missing(
        self, core: _core.UpdateQueue, m: int, here: int, iteration: int | None, sender: int | None, deadline: Deadline
    ) -> None:
        """Wait until `m` updates have been received; `here` have already arrived."""
        if sender is not None and not self._is_alive(sender):
            if here < m:
                text = f"expected {m} updates, got {here}, and rank {sender} is dead"
                raise ClosedError(f"{self.name!r}: dequeue: {text}")
            return
        position = self._position_of(sender)
        try:
            self._receive(core, max(m - here, 0), iteration, position, seconds_of(deadline))
        except StallError as error:
            if here > 0:
                error.advise(f"{here} of {m} updates were received before a rank died")
            raise
        if here > 0:  # the engine may have earlier ones
            self._receive(core, min(m, core.size(iteration, position)), iteration, position, 0.0)

    def _receive(
        self, core: _core.UpdateQueue, m: int, iteration: int | None, position: int | None, timeout: float
    ) -> None:
        for values, found, place in core.dequeue(m, iteration, position, timeout=timeout):
            sender, slot = self._members[place], found % self._slots
            newest = self._dequeued.get((sender, slot))
            tag = Tag(found, newest.number + 1 if newest is not None and newest.iteration == found else 1)
            self._dequeued[sender, slot] = tag
            self._received.append(Kept(tag, sender, values))

    def size(self, iteration: int | None, sender: int | None) -> int:
        """Return the number of updates, including those that the owner received in a recovery."""
        received = sum(_matches(each, iteration, sender) for each in self._received)
        core, position = self._core, self._position_of(sender)
        if core is None or (sender is not None and position is None):
            return received
        return received + core.size(iteration, position)

    def _position_of(self, sender: int | None) -> int | None:
        return self._members.index(sender) if sender is not None and self._is_alive(sender) else None

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        self._stop()
        return {
            "rank": self._rank,
            "left": self._left,
            "kept": [each.tag for each in self._all_kept],
            "dequeued": [[sender, *tag] for (sender, _), tag in self._dequeued.items()],
            "oldest": self._oldest,
        }

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. The survivors send the owner the updates that it lacks."""
        of_owner = next((state for state in states if state["rank"] == self._arguments.owner), None)
        if of_owner is None or of_owner["left"]:
            return
        dequeued = {(sender, tag[0] % self._slots): tag for sender, *tag in of_owner["dequeued"]}
        missing = [
            (state["rank"], Tag(*tag))
            for state in states
            for tag in state["kept"]
            if tag[0] >= of_owner["oldest"] and tag > dequeued.get((state["rank"], tag[0] % self._slots), [])
        ]
        if not missing:
            return
        nbytes = self._arguments.like.buffer.count * self._arguments.like.buffer.dtype.itemsize
        values = np.zeros((len(missing), nbytes), np.uint8)
        own = {each.tag: each.values for each in self._all_kept}
        for row, (sender, tag) in zip(values, missing, strict=True):
            if sender == self._rank:
                row[:] = own[tag]
        if nbytes > 0:
            values = self.shared_bytes(values, f"{self.name}: updates", deadline)
        if self._rank == self._arguments.owner:
            for row, (sender, tag) in zip(values, missing, strict=True):
                self._received.append(Kept(tag, sender, row.copy()))
                self._dequeued[sender, tag.iteration % self._slots] = tag

    def resume(self) -> None:
        super().resume()
        self._kept.clear()  # the owner has them all
        if self._core is not None and not self._left and self._rank == self._arguments.owner:
            self._core.dequeue(0, self._oldest, None, timeout=0.0)  # earlier updates are stale

    def statistics(self) -> dict[str, Any]:
        counts, kept = super().statistics(), sum(each.values.nbytes for each in [*self._all_kept, *self._received])
        return counts | {"memory_bytes": counts["memory_bytes"] + kept}


def _matches(each: Kept, iteration: int | None, sender: int | None) -> bool:
    return iteration in (None, each.tag.iteration) and sender in (None, each.sender)
