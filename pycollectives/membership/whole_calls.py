"""Whole calls, such as `mean` and `agree`: all members make a partial allreduce, use it once, and leave it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..partial_allreduce.arguments import PartialAllreduceArguments
from ..partial_allreduce.collective import PartialAllreduce

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, Op

__all__ = ["WholeCall", "WholeCalls"]

T = TypeVar("T")

LONGEST_PART = 1800
"""Characters that ranks exchange at a time. The engine compares up to 4096 bytes, and a quotation mark takes two."""


class WholeCall(NamedTuple):
    """Describes a completed whole call to a newcomer, which does not make the call itself."""

    name: str
    dtype: str
    elements: int
    op: str

    def arguments(self) -> PartialAllreduceArguments:
        return _arguments(np.zeros(self.elements, self.dtype), self.op, self.name)


def _arguments(array: Array, op: Op, name: str) -> PartialAllreduceArguments:
    return PartialAllreduceArguments(array, op=op, policy="full", missed="latest", name=name)


class WholeCalls:
    """The whole calls of one communicator's members, which recover if a rank has died.

    Attributes
    ----------
    members
        The live ranks, ascending, by their original numbers.
    """

    members: tuple[int, ...]

    def __init__(self, comm: Communicator, context: Context) -> None:
        self._comm = comm
        self._context = context

    def reduce(self, call: str, make: Callable[[], Array], op: Op, timeout: float | None = None) -> Array:
        """Return the reduction of an array over the members; collective.

        `make` checks and returns this rank's array. If it raises an error, this rank raises it, and the other ranks
        raise `MismatchError`.
        """
        deadline = self._context.rendezvous.deadline if timeout is None else self._context.deadline_of(timeout)
        arrays: list[Array] = []

        def arguments() -> PartialAllreduceArguments:
            self._context.limit(timeout)
            arrays[:] = [make()]
            return _arguments(arrays[0], op, call)

        made = PartialAllreduce.make(self._context, arguments, call=call, timeout=deadline.remaining())
        made.recoverable.whole_call = WholeCall(call, arrays[0].dtype.str, arrays[0].size, made.op)
        try:
            result, _ = made.allreduce(arrays[0], timeout=deadline.remaining())
        finally:
            made.leave()
        return result

    def is_same(self, call: str, make: Callable[[], bytes], timeout: float | None) -> bool:
        """Return whether a text is the same on all members; collective."""

        def digest() -> Array:
            values = np.frombuffer(hashlib.blake2b(make(), digest_size=16).digest(), np.uint64)
            return np.concatenate([values, ~values])

        least = self.reduce(call, digest, "MIN", timeout)
        return bool((least[:2] == ~least[2:]).all())

    def compare(self, local: bytes, /, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """See `agreement.consistency.Exchange`. In the returned list, a dead rank has this rank's text."""
        if self.is_same(what, lambda: local, timeout):
            return None
        longest = int(self.reduce(what, lambda: np.array([len(local)]), "MAX", timeout)[0])
        own = np.zeros((self._comm.size, 1 + longest), np.uint8)
        own[self._comm.rank, : len(local) + 1] = [*local, 1]  # the 1 marks the end
        texts = [bytes(row).rstrip(b"\0")[:-1] for row in self.reduce(what, lambda: own, "BOR", timeout)]
        return [text or local for text in texts]

    # ------------------------------------------------------------------------------------------------ states

    def collected(self, local: dict[int, dict[str, Any]], deadline: Deadline) -> list[dict[int, dict[str, Any]]]:
        """Return the states of each survivor's collectives, by number."""
        own = json.dumps(list(local.items()), separators=(",", ":"))
        length = max(self.gathered(len(own), "recovery", deadline))
        texts = [""] * len(self.members)
        for first in range(0, length, LONGEST_PART):
            for rank, part in enumerate(self.gathered(own[first : first + LONGEST_PART], "recovery", deadline)):
                texts[rank] += part
        return [dict(json.loads(text)) for text in texts]

    def gathered(self, local: T, what: str, deadline: Deadline) -> list[T]:
        """Return the values of all members, by rank; collective."""
        text = json.dumps(local, separators=(",", ":")).encode()
        texts = self._context.engine.compare(text, what=what, timeout=deadline.remaining())
        return [local] * len(self.members) if texts is None else [json.loads(each) for each in texts]
