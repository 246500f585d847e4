"""What this service adds to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..collective import Factory
from .collective import Hop
from .token_queue import TokenQueue
from .update_queue import UpdateQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..support.typing import BufferSpec
    from ..topology.graph import Topology
    from .modes import Mode, Skip

__all__ = ["HopMethods"]


class HopMethods(Factory):
    """Decentralized training where ranks differ in speed: Hop."""

    def hop(
        self,
        like: BufferSpec,
        *,
        topology: Topology | str = "ring-based",
        max_ig: int = 5,
        mode: Mode | str | None = None,
        skip: Skip | None = None,
        computation: Literal["parallel", "serial"] = "parallel",
        name: str | None = None,
    ) -> Hop:
        """Make a Hop, decentralized training in which ranks may be several iterations apart; collective.

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64: this rank's initial
            parameters, which are copied.
        topology
            Who sends updates to whom: a graph of `pycollectives.topology`, connected, or its name. Averages are plain
            means, so that the mean over ranks is kept where all ranks have as many neighbors (section 3.1).
        max_ig
            At least 1: how many iterations a rank may be ahead of an out-neighbor, by token queues (section 4.2). A
            rank has memory for max_ig + 1 updates of each in-neighbor, and for as many copies of its own if it has
            out-neighbors on other nodes.
        mode
            `Standard()`, the default, `NotifyAck()`, `BackupWorkers(n)`, `BoundedStaleness(s)` or `Hybrid(n, s)`; or a
            text such as "backup:1" or "skip:10", as `pycollectives.hop.modes.parse` takes it.
        skip
            `Skip(max_jump, trigger)`: a rank that is far behind skips iterations (section 5). Not under `Standard()`
            and `NotifyAck()`, which leave nobody behind.
        computation
            "parallel": updates are sent before gradients are computed, and travel meanwhile; "serial": afterwards, with
            the gradients in them (section 3.2).
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        RuntimeError
            The memory that ranks of a node share cannot be had.
        ClosedError
            The communicator is closed.
        """
        return self.create(
            Hop,
            like=like,
            topology=topology,
            max_ig=max_ig,
            mode=mode,
            skip=skip,
            computation=computation,
            name=name,
        )

    def update_queue(
        self,
        like: BufferSpec,
        *,
        owner: int,
        senders: Iterable[int] | None = None,
        max_ig: int = 5,
        name: str | None = None,
    ) -> UpdateQueue:
        """Make the update queue of one rank by itself, for schemes of your own; collective.

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, with the count and dtype of an update.
        owner
            The rank that dequeues.
        senders
            The ranks that enqueue; by default all others.
        max_ig
            At least 1: there are max_ig + 1 slots for each sender.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError, MismatchError, StallError, RuntimeError, ClosedError
            As `hop`.
        """
        return self.create(UpdateQueue, like=like, owner=owner, senders=senders, max_ig=max_ig, name=name)

    def token_queue(self, *, owner: int, taker: int, tokens: int = 5, name: str | None = None) -> TokenQueue:
        """Make a token queue between two ranks by itself; collective.

        Parameters
        ----------
        owner
            The rank that puts tokens in.
        taker
            The rank that takes them out.
        tokens
            In it at first: max_ig in Hop, at least 0.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, MismatchError, StallError, RuntimeError, ClosedError
            As `hop`.
        """
        return self.create(TokenQueue, owner=owner, taker=taker, tokens=tokens, name=name)
