"""The arguments of an `EagerOptimizer`: what they must be, and the means over ranks that they describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..partial_allreduce.eager_mean import EagerMean, check_average
from ..partial_allreduce.policies import as_policy
from ..support.validation import checked_integer
from .deadlock_guard import Waits

if TYPE_CHECKING:
    from ..communicator import Communicator
    from ..partial_allreduce.eager_mean import Average
    from ..partial_allreduce.policies import Policy
    from ..support.typing import Array, Missed

__all__ = ["Arguments"]


@dataclass(frozen=True)
class Arguments:
    """See `EagerOptimizer`."""

    policy: Policy | str
    missed: Missed
    average: Average
    bucket_bytes: int
    sync_every: int | None
    max_staleness: int | None
    history: int

    def waits(self, size: int) -> Waits:
        """What rounds of `size` ranks may wait for."""
        return Waits.of(as_policy(self.policy), self.max_staleness, size)

    def checked(self, size: int) -> Arguments:
        """Return the same for `size` ranks, with a policy for a text, and numbers as Python has them.

        Raises
        ------
        TypeError, ValueError
            One is refused. Those of the partial allreduces are checked when these are made.
        """
        check_average(self.average)
        policy = as_policy(self.policy).for_size(size)
        bucket_bytes = checked_integer("bucket_bytes", self.bucket_bytes, at_least=1)
        sync_every = None if self.sync_every is None else checked_integer("sync_every", self.sync_every, at_least=1)
        return replace(self, policy=policy, bucket_bytes=bucket_bytes, sync_every=sync_every)

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks."""
        return {"average": self.average, "bucket_bytes": self.bucket_bytes, "sync_every": self.sync_every}

    def make_mean(self, comm: Communicator, name: str, like: Array) -> EagerMean:
        """Make the mean over ranks of arrays like one; collective."""
        return EagerMean(
            comm,
            like,
            average=self.average,
            missed=self.missed,
            policy=self.policy,
            max_staleness=self.max_staleness,
            history=self.history,
            name=name,
            flushed_by="optimizer.flush()",
        )
