"""`preduce` on a communicator with `on_failure="continue"`.

If a death interrupts a P-Reduce that some members have completed, the other members receive its result from one of
them. If no survivor has completed the P-Reduce, all members repeat it with their original values.

To find out which ranks have completed a P-Reduce, each rank counts its P-Reduces with every other rank. Two ranks
perform their common groups in the same order, so their counts differ only if one of them lacks a P-Reduce. Each rank
keeps its newest common result with every other rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..arguments import Arguments
from ..support.buffers import array_of
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError
from .explicit import ExplicitGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..context import Context
    from ..support.typing import Array, BufferSpec, Op


class State(NamedTuple):
    """One survivor's completed and open P-Reduces."""

    rank: int
    performed: list[int]  # the number completed with each rank
    group: list[int]  # members of the open P-Reduce; empty if there is none
    nbytes: int  # size of its values

    def lacks(self, other: State) -> bool:
        """Return True if rank `other.rank` has completed this rank's open P-Reduce."""
        return other.rank in self.group and other.performed[self.rank] > self.performed[other.rank]


class ContinuingGroups(Continuing[Arguments, ExplicitGroups]):  # type: ignore[type-var] # ends with the communicator
    """One rank's P-Reduces in groups that the program names, which recover if a rank has died."""

    def __init__(self, context: Context) -> None:
        self._performed = [0] * context.communicator.size
        self._results: dict[int, Array] = {}  # the newest result with each rank, as bytes
        self._group: tuple[int, ...] = ()  # members of the unfinished call, even after its time limit
        self._values: Array | None = None  # ... its values, during the call
        self._kept = np.empty(0, np.uint8)  # ... a copy from its beginning
        self._received: Array | None = None  # ... its result, from another member
        super().__init__(context, context.checked("preduce", Arguments, name="preduce"), Deadline(None))

    def _made_for_members(self, deadline: Deadline) -> ExplicitGroups:
        del deadline  # the engine's part is made without other ranks
        return ExplicitGroups(self._context)

    def reduce(
        self, x: BufferSpec, group: Sequence[int], op: Op, timeout: float | None, stream: Any, *, caller: str
    ) -> None:
        """See `ExplicitGroups.reduce`. Ranks in `group` have their original numbers."""
        try:
            deadline = self.deadline(timeout)
        except (TypeError, ValueError):
            deadline = Deadline(None)  # `prepared` refuses it, so that the other members learn of it

        has_begun = False

        def action() -> None:
            nonlocal has_begun
            groups = self._engine_side
            places = [self._members.index(rank) for rank in group if rank in self._members]
            perform = groups.prepared(x, places, op, timeout, stream, caller=caller, on_host=True)
            if not has_begun:
                self._begin(array_of(x), tuple(group))
                has_begun = True
            try:
                if self._received is not None and self._values is not None:
                    np.copyto(self._values, self._received)
                elif perform is not None:
                    perform(timeout=seconds_of(deadline))
            except (RankFailedError, StallError):
                raise
            except Exception:
                self._end()
                raise
            self._complete()

        try:
            self._run(action, deadline)
        except BaseException:
            if has_begun:
                self._give_up()
            raise

    def _begin(self, array: Array, group: tuple[int, ...]) -> None:
        """Keep a copy of the values. If the last call was abandoned and had another group, drop its result."""
        if self._group != group:
            if self._received is not None:
                self._count(self._received)
            self._received = None
        self._group, self._values = group, array.reshape(-1).view(np.uint8)
        self._kept = self._values.copy()

    def _complete(self) -> None:
        assert self._values is not None
        self._count(self._values.copy())
        self._end()

    def _count(self, result: Array) -> None:
        for rank in self._group:
            if rank != self._rank:
                self._performed[rank] += 1
                self._results[rank] = result

    def _end(self) -> None:
        self._group, self._values, self._kept, self._received = (), None, np.empty(0, np.uint8), None

    def _give_up(self) -> None:
        """Leave an unfinished call. If the engine has stopped, restore the array to its initial values."""
        with self._in_use:
            try:
                self._context.engine.check_usable()
            except RankFailedError:
                if self._values is not None:
                    np.copyto(self._values, self._kept)
            self._values = None

    @property
    def cache(self) -> tuple[int, int]:
        """See `ExplicitGroups.cache`. The counts begin again after each death."""
        return (0, 0) if self._core is None else self._core.cache

    def close(self) -> None:
        if self._core is not None:
            self._core.close()

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        self._core = None
        if self._values is not None:
            np.copyto(self._values, self._kept)
        return State(self._rank, list(self._performed), list(self._group), self._kept.size)._asdict()

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        survivors = [State(**state) for state in states]
        (own,) = (state for state in survivors if state.rank == self._rank)
        self._received = None  # from an attempt that another death has interrupted
        for state in survivors:
            source = next((other for other in survivors if state.lacks(other)), None)
            if source is None:
                continue
            values = self._results[state.rank] if source is own else np.zeros(state.nbytes, np.uint8)
            values = self.shared_bytes(values, "preduce", deadline) if state.nbytes else values
            if state is own:
                self._received = values
        for state in survivors:
            if state is not own and not own.lacks(state) and not state.lacks(own):
                self._performed[state.rank] = max(self._performed[state.rank], state.performed[self._rank])
