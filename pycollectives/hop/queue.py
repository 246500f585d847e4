"""The base class of update queues and token queues, which checks the calling rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..collective import Collective, Statistics

if TYPE_CHECKING:
    from ..arguments import Arguments

__all__ = ["Queue"]

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")


class Queue(Collective[ArgumentsT]):
    """Base class of `TokenQueue` and `UpdateQueue`. When the owner leaves, the queued entries are lost."""

    def statistics(self) -> Statistics:
        return Statistics(**self._collective.statistics())  # type: ignore[attr-defined]

    def _check_is(self, what: str, ranks: tuple[int, ...], call: str) -> None:
        if (rank := self._context.communicator.rank) not in ranks:
            named = " or ".join(map(str, ranks))
            raise RuntimeError(f"{self.name}: {call}: expected a call on {what}, rank {named}, got one on rank {rank}")
