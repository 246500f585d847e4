"""The mean over all ranks of a vector: a call that ran into its time limit goes on when it is called again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.operations import AVG

if TYPE_CHECKING:
    from .._core import Round
    from ..communicator import Communicator
    from ..support.deadline import Deadline
    from ..support.typing import Array

__all__ = ["ExactMean"]


class ExactMean:
    """One rank's side; collective to make and to call. A rank that has left has no part.

    Attributes
    ----------
    rounds
        The partial allreduce that it stands on.
    """

    def __init__(self, comm: Communicator, like: Array, name: str) -> None:
        """Make it for arrays of the count and dtype of `like`."""
        self.rounds = comm.partial_allreduce(like, op=AVG, policy="full", name=name)
        self.rounds.discards = False  # no later mean delivers missing values
        self._round: Round | None = None
        self._mean: Array | None = None

    def __call__(self, values: Array, deadline: Deadline) -> Array:
        """Return the mean, in a new array.

        Raises
        ------
        StallError
            Not done in time. The next call goes on where this one was, whatever its `values` are.
        """
        if self._round is None:
            self._round = self.rounds.contribute(values)
        self._round.wait(timeout=deadline.remaining())
        if self._mean is None:
            self._mean = self.rounds.result.copy()
        self.rounds.flush(timeout=deadline.remaining())
        mean, self._mean, self._round = self._mean, None, None
        return mean

    def leave(self) -> None:
        """Take no further part; without waiting."""
        self.rounds.leave()

    def abort(self) -> None:
        """Leave at once."""
        self.rounds.abort()
