"""What update queues and token queues have in common: who may call what."""

from __future__ import annotations

from ..collective import WithoutFlush

__all__ = ["Queue"]


class Queue(WithoutFlush):
    """What both kinds have in common. What is in one when its owner leaves is lost."""

    def _check_is(self, what: str, ranks: tuple[int, ...], call: str) -> None:
        if self._context.rank not in ranks:
            raise ValueError(f"{self.name}: {call} is for {what}, rank {', '.join(map(str, ranks))}, not for this one")
