"""What update queues and token queues have in common: who may call what."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..collective import Collective, Statistics

if TYPE_CHECKING:
    from ..arguments import Arguments

__all__ = ["Queue"]

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")


class Queue(Collective[ArgumentsT]):
    """Base of both queues. What is queued when the owner leaves is lost."""

    def statistics(self) -> Statistics:
        """Return what this rank has counted; local, without communication."""
        return Statistics(**self._collective.statistics())  # type: ignore[attr-defined]

    def _check_is(self, what: str, ranks: tuple[int, ...], call: str) -> None:
        if self._context.rank not in ranks:
            raise ValueError(f"{self.name}: {call} is for {what}, rank {', '.join(map(str, ranks))}, not for this one")
