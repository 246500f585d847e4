"""m-synchronous SGD: a step takes the first m gradients and drops the rest (Chen et al. 2016).

A late rank applies the means that it missed and continues from the common weights. Replicas differ by rounding only if
the update rule is linear in the gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import policies
from .base import Simulated
from .eager import Eager

if TYPE_CHECKING:
    from ...communicator import Communicator
    from ..models.base import Model


class MSynchronous(Eager):
    """Eager-SGD whose rounds start at m arrivals and drop late gradients; sums are divided by the contributors."""

    def __init__(self, comm: Communicator, model: Model, *, m: int) -> None:
        if not 1 <= m <= comm.size:
            raise ValueError(f"m: expected 1 <= m <= {comm.size}, the number of ranks; got {m}")
        super().__init__(comm, model, policy=policies.Quorum(m), missed="sum", divide_by="contributors", late="drop")

    @classmethod
    def for_fewer(cls, ranks: int, **options: Any) -> dict[str, Any]:
        return {**options, "m": min(options["m"], ranks)}

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        """Simulate rounds of m arrivals that drop late gradients."""
        return Simulated("allreduce", {"policy": policies.Quorum(options["m"]), "late": "drop"})
