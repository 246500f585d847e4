"""Token queues by themselves (Hop, section 4.2), for schemes of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.validation import checked_integer
from .arguments import TokenQueueArguments
from .modes import MOST
from .queue import Queue

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline

__all__ = ["TokenQueue"]


class TokenQueue(Queue[TokenQueueArguments]):
    """TokenQ(owner -> taker): tokens that one rank puts in and another takes out; made by `Communicator.token_queue`.

    In Hop a rank takes a token for each iteration that it enters, and puts one in for each, so that there are
    Iter(owner) - Iter(taker) + max_ig (Luo et al., "Hop", ASPLOS 2019, section 4.2). An owner that has left gives
    tokens without end.

    Attributes
    ----------
    owner
        The rank that enqueues.
    taker
        The rank that dequeues.

    >>> import pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     q = comm.token_queue(owner=0, taker=1, tokens=2)
    ...     if comm.rank == 0:
    ...         q.enqueue(3)
    ...         return None
    ...     q.dequeue(5, timeout=30)
    ...     return q.size()
    >>> run_ranks(2, program)[1]
    0
    """

    arguments = TokenQueueArguments
    _collective: _core.TokenQueue

    def __init__(self, context: Context, arguments: TokenQueueArguments, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        self.owner = arguments.owner
        self.taker = arguments.taker
        self._collective = core.TokenQueue(
            context.engine,
            owner=arguments.owner,
            taker=arguments.taker,
            tokens=arguments.tokens,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            name=arguments.name,
        )

    def enqueue(self, tokens: int = 1) -> None:
        """Put tokens in; for the owner. Does not wait.

        Parameters
        ----------
        tokens
            At least 0.

        Raises
        ------
        ValueError, TypeError, ClosedError
            An argument is refused, this rank is not the owner, or there would be more than 2^62 tokens; this rank has
            left.
        """
        self._check_is("the owner", (self.owner,), "enqueue")
        self._collective.enqueue(checked_integer("tokens", tokens, at_least=0, at_most=MOST))

    def dequeue(self, tokens: int = 1, *, timeout: float | None = None) -> None:
        """Take tokens out, all or none; for the taker. Waits until there are as many.

        Parameters
        ----------
        tokens
            At least 0.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError
            An argument is refused, or this rank is not the taker.
        StallError
            There are fewer in time. None is taken out.
        RuntimeError, ClosedError, RankFailedError
            Another thread is in a call of this object; this rank has left; ranks have died.
        """
        self._check_is("the taker", (self.taker,), "dequeue")
        number = checked_integer("tokens", tokens, at_least=0, at_most=MOST)
        self._collective.dequeue(number, timeout=self._context.limit(timeout))

    def size(self) -> int:
        """Return how many tokens there are, as far as this rank knows; for both."""
        self._check_is("owner and taker", (self.owner, self.taker), "size")
        return self._collective.size()

    def _choices(self) -> list[str]:
        return [f"of rank {self.owner} for rank {self.taker}"]
