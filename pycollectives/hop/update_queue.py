"""Update queues by themselves (Hop, section 4.1), for schemes of your own."""
# ruff: noqa: A002  # iter is the paper's name

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..support import buffers
from ..support.validation import checked_integer, checked_name, checked_rank, with_prefix
from .arguments import LONGEST_GAP
from .modes import MOST
from .queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

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
    iter
        The iteration in which it was generated.
    w_id
        The rank that sent it.
    """

    update: Array
    iter: int
    w_id: int


@dataclass(frozen=True)
class UpdateQueueSpecification:
    """The arguments of `Communicator.update_queue` after all checks that need no other rank."""

    buffer: buffers.BufferDescription
    owner: int
    senders: tuple[int, ...]
    max_ig: int
    name: str

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "owner": self.owner,
            "senders": str(self.senders),
            "max_ig": self.max_ig,
            "name": self.name,
        }


class UpdateQueue(Queue):
    """UpdateQ(owner): updates of some ranks, tagged with iteration and sender; made by `Communicator.update_queue`.

    It has max_ig + 1 slots for each sender, made at creation. The update of iteration k goes to slot k modulo their
    number (Luo et al., "Hop", ASPLOS 2019, sections 4.1 and 6.1). When the owner has asked for updates of iteration k,
    those of earlier iterations are stale: they are discarded, there or before they are sent (section 6.2).

    One thread at a time. Of a node's ranks the sender copies the update into the slot; between nodes it keeps a copy
    until the owner's engine has taken it.

    Attributes
    ----------
    owner
        Whose queue it is.
    senders
        The ranks that enqueue, ascending.
    max_ig
        As given.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     q = comm.update_queue(like=np.zeros(2), owner=0)
    ...     if comm.rank > 0:
    ...         q.enqueue(np.full(2, float(comm.rank)), iter=7)
    ...         return None
    ...     return [(u.w_id, u.iter, u.update.tolist()) for u in q.dequeue(2, iter=7, timeout=30)]
    >>> run_ranks(3, program)[0]
    [(1, 7, [1.0, 1.0]), (2, 7, [2.0, 2.0])]
    """

    _specification: UpdateQueueSpecification

    def __init__(self, specification: UpdateQueueSpecification, context: Context, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        self._specification = specification
        self._context = context
        self.owner = specification.owner
        self.senders = specification.senders
        self.max_ig = specification.max_ig
        self._collective: _core.UpdateQueue = core.UpdateQueue(
            context.engine,
            owner=specification.owner,
            senders=specification.senders,
            dtype_name=specification.buffer.dtype.name,
            count=specification.buffer.count,
            max_ig=specification.max_ig,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            name=specification.name,
        )

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: BufferSpec,
        owner: int,
        senders: Iterable[int] | None = None,
        max_ig: int = 5,
        name: str | None = None,
    ) -> Self:
        """Make one, by the arguments of `Communicator.update_queue`; collective."""

        def check() -> UpdateQueueSpecification:
            owner_rank = checked_rank("owner", owner, context.size)
            others = [rank for rank in range(context.size) if rank != owner_rank]
            given = others if senders is None else sorted({checked_rank("senders", r, context.size) for r in senders})
            if owner_rank in given:
                raise ValueError(f"senders: expected ranks other than the owner, {owner_rank}, got {given}")
            return UpdateQueueSpecification(
                buffers.describe(like),
                owner_rank,
                tuple(given),
                checked_integer("max_ig", max_ig, at_least=1, at_most=LONGEST_GAP),
                checked_name(context.default_name("update_queue") if name is None else name),
            )

        return context.make("update_queue", check, lambda agreed, deadline: cls(agreed, context, deadline))

    def enqueue(self, update: BufferSpec, iter: int, w_id: int | None = None, timeout: float | None = None) -> None:
        """Put an update into the queue; for senders.

        It waits for the owner only if the slot still has an update that is not stale, of max_ig + 1 iterations before.
        A stale update is discarded, and so is one for an owner that has closed the queue.

        Parameters
        ----------
        update
            C-contiguous host memory of the count and dtype of `like`. It is copied: it may be changed at once.
        iter
            The iteration in which it was generated, at least 0.
        w_id
            The sender: this rank, which is the default.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong count or dtype; not a sender, or another one's `w_id`. Nothing is sent.
        StallError
            There is no room in time: names the owner.
        RuntimeError
            Another thread is in a call of this object.
        ClosedError, RankFailedError
            After `close`; ranks have died.
        """
        self._check_is("senders", self.senders, "enqueue")
        if w_id is not None and w_id != self._context.rank:
            raise ValueError(f"{self.name}: w_id: expected {self._context.rank}, this rank, got {w_id!r}")
        number = checked_integer("iter", iter, at_least=0, at_most=MOST)
        limit = self._context.limit(timeout)
        try:
            array = buffers.matching_array(update, self._specification.buffer, exact_shape=False)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None
        self._collective.enqueue(buffers.as_bytes_exporter(array), number, timeout=limit)

    def dequeue(
        self, m: int, iter: int | None = None, w_id: int | None = None, timeout: float | None = None
    ) -> list[Update]:
        """Take out `m` updates with the tags given; for the owner. Waits until there are as many.

        Parameters
        ----------
        m
            At least 0, and no more than can be there: one of each sender and iteration, of max_ig + 1 iterations.
        iter, w_id
            Of which iteration, and of which sender; None: of any. What is older than `iter` is discarded.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        list
            The first `m`, by iteration and then by sender.

        Raises
        ------
        ValueError, TypeError
            An argument is refused, or this rank is not the owner; or it has asked for a later iteration than `iter`
            before.
        StallError
            There are fewer in time: names the senders and the iteration. None is taken out.
        ClosedError
            All senders that could have sent more have left; or this rank has.
        RuntimeError, RankFailedError
            Another thread is in a call of this object; ranks have died.
        """
        tags = self._tags(iter, w_id, "dequeue")
        senders = len(self.senders) if w_id is None else 1
        most = senders if iter is not None else senders * (self._specification.max_ig + 1)
        number = checked_integer("m", m, at_least=0, at_most=most)
        limit = self._context.limit(timeout)
        taken = self._collective.dequeue(number, *tags, timeout=limit)
        buffer = self._specification.buffer
        return [Update(data.view(buffer.dtype).reshape(buffer.shape), k, sender) for data, k, sender in taken]

    def size(self, iter: int | None = None, w_id: int | None = None) -> int:
        """Return how many updates with the tags given are there; for the owner.

        Parameters
        ----------
        iter, w_id
            Of which iteration, and of which sender; None: of any.
        """
        return self._collective.size(*self._tags(iter, w_id, "size"))

    def _tags(self, iter: int | None, w_id: int | None, call: str) -> tuple[int | None, int | None]:
        self._check_is("the owner", (self.owner,), call)
        if w_id is not None and w_id not in self.senders:
            raise ValueError(f"{self.name}: w_id: expected a sender, {self.senders}, got {w_id!r}")
        return None if iter is None else checked_integer("iter", iter, at_least=0, at_most=MOST), w_id

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        state = " closed" if self.closed else ""
        buffer = self._specification.buffer
        return f"<UpdateQueue {self.name!r} of rank {self.owner}, of {buffer.count} {buffer.dtype}{state}>"
