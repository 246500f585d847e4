"""The arguments of an `EagerOptimizer`: what they must be, and the means over ranks that they describe."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..partial_allreduce.eager_mean import EagerMean, check_average
from ..support.environment import checked_timeout
from .deadlock_guard import Waits
from .parameters import Signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from ..communicator import Communicator
    from ..partial_allreduce.eager_mean import Average
    from ..partial_allreduce.policies import Policy
    from ..support.typing import Array, Missed

__all__ = ["Arguments"]


@dataclass(frozen=True)
class Arguments:
    """See `EagerOptimizer`."""

    policy: Policy
    missed: Missed
    average: Average
    bucket_bytes: int
    sync_every: int | None
    broadcast: bool
    max_staleness: int | None
    history: int
    timeout: float | None

    @property
    def waits(self) -> Waits:
        """What rounds may wait for."""
        return Waits.of(self.policy, self.max_staleness)

    def checked(self) -> Arguments:
        """Return the same, with numbers as Python has them.

        Raises
        ------
        TypeError, ValueError
            One is refused. Those of the partial allreduces are checked when these are made.
        """
        check_average(self.average)
        bucket_bytes = _positive("bucket_bytes", self.bucket_bytes)
        sync_every = None if self.sync_every is None else _positive("sync_every", self.sync_every)
        timeout = checked_timeout(self.timeout)
        return replace(self, bucket_bytes=bucket_bytes, sync_every=sync_every, timeout=timeout)

    def signature(self, parameters: Sequence[torch.Tensor]) -> Signature:
        """Return what must be the same on all ranks, parameters included."""
        return Signature.of(
            parameters,
            average=self.average,
            bucket_bytes=self.bucket_bytes,
            sync_every=self.sync_every,
            broadcast=self.broadcast,
        )

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
        )


def _positive(what: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an integer, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{what}: expected at least 1, got {number}")
    return number
