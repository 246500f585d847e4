"""Update queues (Hop, section 4.1), for training schemes that you write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from ..support import buffers
from ..support.validation import checked_integer, with_prefix
from .arguments import UpdateQueueArguments
from .continuing_queues import ContinuingUpdateQueue
from .modes import MOST
from .queue import Queue

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec

__all__ = ["Update", "UpdateQueue"]


class Update(NamedTuple):
    """An update with its tags.

    Attributes
    ----------
    update
        The values: a new array of the shape and dtype of `like`.
    iteration
        The iteration in which it was generated.
    sender
        The rank that sent it.
    """

    update: Array
    iteration: int
    sender: int


class UpdateQueue(Queue[UpdateQueueArguments]):
    """A queue UpdateQ(owner) of updates, each tagged with its iteration and sender.

    Made by `Communicator.update_queue`. It has max_ig + 1 slots for each sender, allocated at creation. The update of
    iteration k goes to slot k modulo (max_ig + 1) (Luo et al., "Hop", ASPLOS 2019, sections 4.1 and 6.1). After the
    owner has asked for updates of iteration k, earlier ones are stale. They are discarded, in the queue or before
    they are sent (section 6.2).

    Only one thread at a time may use the queue. A sender on the owner's node copies the update into the slot. A sender
    on another node keeps a copy until the owner's engine has taken it.

    Attributes
    ----------
    owner
        The rank that dequeues.
    senders
        The ranks that enqueue, ascending.
    max_ig
        The number of slots for each sender, minus 1.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     q = comm.update_queue(np.zeros(2), owner=0)
    ...     if comm.rank > 0:
    ...         q.enqueue(np.full(2, float(comm.rank)), iteration=7)
    ...         return None
    ...     return [(u.sender, u.iteration, u.update.tolist()) for u in q.dequeue(2, iteration=7, timeout=30)]
    >>> run_ranks(3, program)[0]
    [(1, 7, [1.0, 1.0]), (2, 7, [2.0, 2.0])]
    """

    arguments = UpdateQueueArguments
    _collective: _core.UpdateQueue

    def __init__(self, context: Context, arguments: UpdateQueueArguments, deadline: Deadline) -> None:
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        self.owner = arguments.owner
        self.senders = arguments.senders
        self.max_ig = arguments.max_ig
        if context.membership is not None:
            self._collective = cast("_core.UpdateQueue", ContinuingUpdateQueue(context, arguments, deadline))
            return
        self._collective = core.UpdateQueue(
            context.engine,
            owner=arguments.owner,
            senders=arguments.senders,
            dtype_name=self.dtype.name,
            count=self.count,
            max_ig=arguments.max_ig,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            name=arguments.name,
        )

    def enqueue(self, update: BufferSpec, iteration: int, *, timeout: float | None = None) -> None:
        """On a sender, put an update into the queue.

        The call waits for the owner only if the slot still contains the update from max_ig + 1 iterations earlier and
        that update is not stale. A stale update is discarded, and so is an update for an owner that has closed the
        queue.

        Parameters
        ----------
        update
            C-contiguous host memory of the count and dtype of `like`. It is copied, so you may change it afterwards.
        iteration
            The iteration in which it was generated, at least 0. With `on_failure="continue"`, not less than for this
            rank's last update.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError
            `update` has a wrong count or dtype. Nothing is sent.
        StallError
            The slot is not free in time; the message names the owner.
        RuntimeError
            This rank is not a sender, or another thread is in a call of this object.
        ClosedError
            This rank has left.
        RankFailedError
            Ranks have died.
        """
        self._check_is("a sender", self.senders, "enqueue")
        number = checked_integer("iteration", iteration, at_least=0, at_most=MOST)
        limit = self._context.limit(timeout)
        try:
            array = buffers.matching_array(update, self._template.buffer)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None
        self._collective.enqueue(buffers.as_bytes_exporter(array), number, timeout=limit)

    def dequeue(
        self, m: int, iteration: int | None = None, sender: int | None = None, *, timeout: float | None = None
    ) -> list[Update]:
        """On the owner, wait for `m` updates with the given tags, and take them out of the queue.

        Parameters
        ----------
        m
            The number of updates: at least 0, and at most one per sender for each of max_ig + 1 iterations.
        iteration, sender
            Take only updates of this iteration and from this sender; None means any. Updates older than `iteration` are
            discarded.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        list of Update
            The first `m`, ordered by iteration, then by sender.

        Raises
        ------
        ValueError, TypeError
            An argument is invalid, or this rank has already asked for a later iteration.
        StallError
            Fewer than `m` updates arrive in time; the message names the senders and the iteration. No update is taken
            out.
        ClosedError
            All senders that could have sent more have left, or this rank has left.
        RuntimeError
            This rank is not the owner, or another thread is in a call of this object.
        RankFailedError
            Ranks have died.
        """
        tags = self._tags(iteration, sender, "dequeue")
        senders = len(self.senders) if sender is None else 1
        most = senders if iteration is not None else senders * (self.max_ig + 1)
        number = checked_integer("m", m, at_least=0, at_most=most)
        limit = self._context.limit(timeout)
        taken = self._collective.dequeue(number, *tags, timeout=limit)
        buffer = self._template.buffer
        return [Update(data.view(buffer.dtype).reshape(buffer.shape), k, sender) for data, k, sender in taken]

    def size(self, iteration: int | None = None, sender: int | None = None) -> int:
        """On the owner, return the number of updates in the queue with the given tags.

        Parameters
        ----------
        iteration, sender
            Count only updates of this iteration and from this sender; None means any.
        """
        return self._collective.size(*self._tags(iteration, sender, "size"))

    def _tags(self, iteration: int | None, sender: int | None, call: str) -> tuple[int | None, int | None]:
        self._check_is("the owner", (self.owner,), call)
        if sender is not None and sender not in self.senders:
            raise ValueError(f"{self.name}: sender: expected one of {self.senders}, got {sender!r}")
        return None if iteration is None else checked_integer("iteration", iteration, at_least=0, at_most=MOST), sender

    def _choices(self) -> list[str]:
        return [f"of rank {self.owner}"]
