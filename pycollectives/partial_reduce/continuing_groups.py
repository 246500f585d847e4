"""`preduce` on a communicator with `on_failure="continue"`.

A P-Reduce that a death interrupts is made again by the members that have not completed it; each of them has its own
values again. Members that have completed it keep the result. To know them, each rank counts its P-Reduces with every
other rank. Two ranks perform their common groups in the same order, so the counts differ only if one of the two has
completed a P-Reduce that the other has not.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..arguments import Arguments
from ..support.buffers import array_of
from ..support.deadline import Deadline
from .explicit import ExplicitGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..context import Context
    from ..support.typing import Array, BufferSpec, Op

__all__ = ["ContinuingGroups"]


class State(NamedTuple):
    """One survivor's P-Reduces."""

    rank: int
    performed: list[int]  # with each rank


class ContinuingGroups(Continuing[Arguments, ExplicitGroups]):  # type: ignore[type-var] # ends with the communicator
    """One rank's P-Reduces in groups that the program names, which recover if a rank has died."""

    def __init__(self, context: Context) -> None:
        """Make the part of a communicator: see `Context.part`."""
        assert context.membership is not None
        self._performed = [0] * context.communicator.size
        self._group: tuple[int, ...] = ()  # of the call that is under way
        self._values: Array | None = None  # ... its values
        self._kept: Array | None = None  # ... and a copy of them
        self._without: set[int] = set()  # members that have completed it
        super().__init__(context, context.checked("preduce", Arguments, name="preduce"), Deadline(None))

    def _made_for_members(self, deadline: Deadline) -> ExplicitGroups:
        del deadline  # the engine's part is made without other ranks
        return ExplicitGroups(self._context)

    def reduce(
        self, x: BufferSpec, group: Sequence[int], op: Op, timeout: float | None, stream: Any, *, caller: str
    ) -> None:
        """See `ExplicitGroups.reduce`. Ranks in `group` have their original numbers."""
        deadline = self.deadline(timeout)

        def action() -> None:
            groups = self._engine_side
            if not self._group:
                self._begin(x, group)
            left = [rank for rank in group if rank in self._members and rank not in self._without]
            places = [self._members.index(rank) for rank in left]
            groups.reduce(x, places, op, seconds_of(deadline), stream, caller=caller, on_host=True)
            for rank in group:
                self._performed[rank] += rank != self._rank

        try:
            self._run(action, deadline)
        finally:
            self._group, self._values, self._kept, self._without = (), None, None, set()

    def _begin(self, x: BufferSpec, group: Sequence[int]) -> None:
        """Keep a copy of the values, if they are not of a type that will be refused."""
        self._group = tuple(group)
        with contextlib.suppress(TypeError, ValueError, BufferError):
            self._values = array_of(x)
            self._kept = self._values.copy()

    @property
    def cache(self) -> tuple[int, int]:
        """See `ExplicitGroups.cache`; since the newest death."""
        return (0, 0) if self._core is None else self._core.cache

    def close(self) -> None:
        """Close the engine's part."""
        if self._core is not None:
            self._core.close()

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        """See `Recoverable.read_state`."""
        del lost
        self._core = None
        if self._values is not None and self._kept is not None:
            np.copyto(self._values, self._kept)
        return State(self._rank, list(self._performed))._asdict()

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`."""
        del deadline
        for state in (State(**each) for each in states):
            theirs, own = state.performed[self._rank], self._performed[state.rank]
            if state.rank == self._rank:
                continue
            if theirs > own and state.rank in self._group:
                self._without.add(state.rank)
            else:
                self._performed[state.rank] = max(own, theirs)
