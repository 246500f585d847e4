"""Check the arguments of an `EagerOptimizer`, and create the means over ranks that they describe."""

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
    """The memory that the partial allreduce uses; set by `checked`."""
    why_staged: str = ""
    """The reason for staging that was not requested."""

    def waits(self, size: int) -> Waits:
        """Return the events that a round of `size` ranks may wait for."""
        return Waits.of(as_policy(self.policy), self.max_staleness, size)

    def checked(self, comm: Communicator, device: torch.device) -> Arguments:
        """Return the checked arguments for gradients on `device`: policy parsed, numbers converted."""
        check_divide_by(self.divide_by)
        policy = as_policy(self.policy).for_size(comm.size)
        bucket_bytes = checked_integer("bucket_bytes", self.bucket_bytes, at_least=1)
        sync_every = None if self.sync_every is None else checked_integer("sync_every", self.sync_every, at_least=1)
        memory, why = memory_for(device, self.staged, continues=comm._context.membership is not None)
        return replace(
            self, policy=policy, bucket_bytes=bucket_bytes, sync_every=sync_every, memory=memory, why_staged=why
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return the arguments that must be the same on all ranks."""
        return {
            "divide_by": self.divide_by,
            "bucket_bytes": self.bucket_bytes,
            "sync_every": self.sync_every,
            "memory of gradients": self.memory,
        }

    def make_mean(self, comm: Communicator, name: str, like: torch.Tensor) -> TensorMean:
        """Create the mean over ranks of tensors like `like`; collective."""
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
