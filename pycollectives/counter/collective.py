"""A number that all ranks add to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..collective import Collective, Statistics
from ..support.validation import checked_integer
from .arguments import CounterArguments
from .continuing import ContinuingCounter, engine_side

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline

MOST_AT_ONCE = 1 << 31


class SharedCounter(Collective[CounterArguments]):
    """A number that all ranks add to; made by `Communicator.counter`.

    If ranks take their work from one counter, faster ranks take more: an epoch does not wait for a slow rank with a
    fixed share. No two ranks get the same number, and no number is left out.

    The number is in the memory of rank 0's node. Ranks of this node add to it in place and wait for no other rank.
    Other ranks ask rank 0, whose progress thread answers, whatever its application does. Only one thread at a
    time may use a counter.

    If a rank dies and the others continue (`on_failure="continue"`), no two survivors get the same number. Numbers that
    the dead rank had taken are lost, and numbers that rank 0 was giving out when it died may be lost. If no rank of its
    node survives, numbers that dead ranks had taken may be given again.

    >>> import pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     counter = comm.counter()
    ...     return [counter.fetch_add() for _ in range(3)]
    >>> sorted(sum(run_ranks(2, program), []))
    [0, 1, 2, 3, 4, 5]
    """

    arguments = CounterArguments
    _collective: _core.SharedCounter

    def __init__(self, context: Context, arguments: CounterArguments, deadline: Deadline) -> None:
        super().__init__(context, arguments, deadline)
        if context.membership is None:
            self._collective = engine_side(context, arguments.name, arguments.start, deadline)
        else:
            self._collective = cast("_core.SharedCounter", ContinuingCounter(context, arguments, deadline))

    def fetch_add(self, n: int = 1, *, timeout: float | None = None) -> int:
        """Add to the counter, and return its previous value, as MPI_Fetch_and_op does.

        Parameters
        ----------
        n
            0 to 2^31. The `n` numbers starting at the result belong to this rank.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        int
            The previous value.

        Raises
        ------
        ValueError, TypeError
            `n` is refused, or differs from the `n` of the last call, which raised StallError.
        StallError
            Rank 0, on another node, does not answer in time. If you repeat the call, it takes no further numbers.
        RuntimeError
            Another thread is in a call of this object.
        ClosedError
            This rank has left.
        RankFailedError
            Ranks have died.
        """
        number = checked_integer("n", n, at_least=0, at_most=MOST_AT_ONCE)
        if self._context.engine.progress == "caller":
            self._context.engine.advance()  # rank 0 answers others
        return self._collective.fetch_add(number, timeout=self._context.limit(timeout))

    def read(self, *, timeout: float | None = None) -> int:
        """Return the value, as `fetch_add(0)` does, with its `timeout` and errors."""
        return self.fetch_add(0, timeout=timeout)

    def statistics(self) -> Statistics:
        return Statistics(**self._collective.statistics())
