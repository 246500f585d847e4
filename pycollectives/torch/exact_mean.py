"""The mean of a vector over all ranks. If a call times out, the next call resumes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.operations import AVG

if TYPE_CHECKING:
    from .._core import Round
    from ..communicator import Communicator
    from ..support.deadline import Deadline
    from ..support.typing import Array


class ExactMean:
    """Compute the mean over the ranks that have not left. Creation and calls are collective."""

    def __init__(self, comm: Communicator, like: Array, name: str) -> None:
        """Create the collective for arrays with the count and dtype of `like`."""
        self.count = like.size
        self.rounds = comm.partial_allreduce(like, op=AVG, policy="full", name=name)
        self.rounds.discards = False  # no later mean delivers missing values
        self._round: Round | None = None
        # the mean of a call that still waits for other ranks; a rank that replaces a dead one takes it over
        self.computed: Array | None = None

    def __call__(self, values: Array, deadline: Deadline) -> Array:
        """Return the mean in a new array. After a StallError, call again to continue with the earlier `values`."""
        if self.computed is None:
            if self._round is None:
                self._round = self.rounds.contribute(values)
            self._round.wait(timeout=deadline.remaining())
            self.computed = self.rounds.result.copy()
        self.rounds.flush(timeout=deadline.remaining())
        mean, self.computed, self._round = self.computed, None, None
        return mean

    def leave(self) -> None:
        """Leave the collective without waiting for other ranks."""
        self.rounds.leave()

    def abort(self) -> None:
        """Leave the collective at once and discard pending data."""
        self.rounds.abort()
