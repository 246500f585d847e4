"""The arguments of an `EagerOptimizer`: what they must be, and the means over ranks that they describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..partial_allreduce.eager_mean import check_divide_by
from ..policies import as_policy
from ..support.validation import checked_integer
from .deadlock_guard import Waits
from .means import MEANS, memory_for

if TYPE_CHECKING:
    import torch

    from ..communicator import Communicator
    from ..partial_allreduce.eager_mean import DivideBy
    from ..policies import Policy
    from ..support.typing import Missed
    from .means import Memory, TensorMean

__all__ = ["Arguments"]


@dataclass(frozen=True)
class Arguments:
    """See `EagerOptimizer`."""

    policy: Policy | str
    missed: Missed
    divide_by: DivideBy
    bucket_bytes: int
    sync_every: int | None
    max_staleness: int | None
    history: int
    staged: bool | None
    memory: Memory = "host"
    """From where gradients get to the partial allreduce; `checked` finds it out."""
    why_staged: str = ""
    """Why they are staged although nobody asked for that."""

    def waits(self, size: int) -> Waits:
        """What rounds of `size` ranks may wait for."""
        return Waits.of(as_policy(self.policy), self.max_staleness, size)

    def checked(self, comm: Communicator, device: torch.device) -> Arguments:
        """Return the same for ranks with gradients on a device, with a policy for a text, and numbers as Python's.

        Raises
        ------
        TypeError, ValueError
            One is refused. Those of the partial allreduces are checked when these are made.
        """
        check_divide_by(self.divide_by)
        policy = as_policy(self.policy).for_size(comm.size)
        bucket_bytes = checked_integer("bucket_bytes", self.bucket_bytes, at_least=1)
        sync_every = None if self.sync_every is None else checked_integer("sync_every", self.sync_every, at_least=1)
        memory, why = memory_for(device, self.staged)
        return replace(
            self, policy=policy, bucket_bytes=bucket_bytes, sync_every=sync_every, memory=memory, why_staged=why
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks."""
        return {
            "divide_by": self.divide_by,
            "bucket_bytes": self.bucket_bytes,
            "sync_every": self.sync_every,
            "memory of gradients": self.memory,
        }

    def make_mean(self, comm: Communicator, name: str, like: torch.Tensor) -> TensorMean:
        """Make the mean over ranks of tensors like one; collective."""
        return MEANS[self.memory](
            comm,
            like,
            divide_by=self.divide_by,
            missed=self.missed,
            policy=self.policy,
            max_staleness=self.max_staleness,
            history=self.history,
            name=name,
            flushed_by="optimizer.flush()",
        )
