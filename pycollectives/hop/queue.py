"""What update queues and token queues have in common: their end, and who may call what."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from ..collective import Collective
from ..support.errors import RankFailedError, TransportError

if TYPE_CHECKING:
    from ..context import Context

__all__ = ["Queue"]


class _Closable(Protocol):
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...


class Queue(Collective):
    """What both kinds have in common."""

    discards = False  # what is in it is lost if its owner wants it so
    _collective: _Closable
    _context: Context
    _name: str

    def close(self) -> None:
        """Leave for good, without waiting for anybody. Again does nothing."""
        self._collective.close()
        self._context.forget(self)

    def abort(self) -> int:
        """Close at once. Returns 0."""
        with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
            self._collective.close()
        self._context.forget(self)
        return 0

    @property
    def closed(self) -> bool:
        """Whether this rank has left for good."""
        return self._collective.closed

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._name

    def _check_is(self, what: str, ranks: tuple[int, ...], call: str) -> None:
        if self._context.rank not in ranks:
            raise ValueError(f"{self.name}: {call} is for {what}, rank {', '.join(map(str, ranks))}, not for this one")
