"""Token queues (Hop, section 4.2), for training schemes that you write."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..support.validation import checked_integer
from .arguments import TokenQueueArguments
from .continuing_queues import ContinuingTokenQueue
from .modes import MOST
from .queue import Queue

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline

__all__ = ["TokenQueue"]


class TokenQueue(Queue[TokenQueueArguments]):
    """A queue TokenQ(owner -> taker): one rank puts tokens in, another takes them out.

    Made by `Communicator.token_queue`. In Hop, for each iteration that a rank enters, it takes a token from each
    out-neighbor's queue and puts one into each of its own, so that a queue contains Iter(owner) - Iter(taker) + max_ig
    tokens (Luo et al., "Hop", ASPLOS 2019, section 4.2). After the owner has left, the taker never waits.

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
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        self.owner = arguments.owner
        self.taker = arguments.taker
        if context.membership is not None:
            self._collective = cast("_core.TokenQueue", ContinuingTokenQueue(context, arguments, deadline))
            return
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
        """On the owner, put tokens into the queue without waiting.

        Parameters
        ----------
        tokens
            The number of tokens, at least 0.

        Raises
        ------
        ValueError, TypeError
            An argument is invalid, or the queue would have more than 2^62 tokens.
        RuntimeError
            This rank is not the owner.
        ClosedError
            This rank has left.
        """
        self._check_is("the owner", (self.owner,), "enqueue")
        self._collective.enqueue(checked_integer("tokens", tokens, at_least=0, at_most=MOST))

    def dequeue(self, tokens: int = 1, *, timeout: float | None = None) -> None:
        """On the taker, wait until the queue has enough tokens, and take them out.

        Parameters
        ----------
        tokens
            The number of tokens, at least 0.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError
            An argument is invalid.
        StallError
            The queue does not have enough tokens in time. No token is taken out.
        RuntimeError
            This rank is not the taker, or another thread is in a call of this object.
        ClosedError
            This rank has left.
        RankFailedError
            Ranks have died.
        """
        self._check_is("the taker", (self.taker,), "dequeue")
        number = checked_integer("tokens", tokens, at_least=0, at_most=MOST)
        self._collective.dequeue(number, timeout=self._context.limit(timeout))

    def size(self) -> int:
        """On the owner or the taker, return the number of tokens, as far as this rank knows."""
        self._check_is("the owner or the taker", (self.owner, self.taker), "size")
        return self._collective.size()

    def _choices(self) -> list[str]:
        return [f"of rank {self.owner} for rank {self.taker}"]
