"""Eager-SGD: gradients are averaged by a partial allreduce that waits for few ranks or none (section 5, Algorithm 2).

A late gradient is added to this rank's next gradient. `missed` defines the result of a rank that has missed rounds:

missed="sum"     the rank gets the sum of all missed results. With an update rule that is linear in the gradient,
                 such as SGD without momentum at a constant rate, replicas differ by rounding only.
missed="latest"  the rank gets only the newest result. Replicas drift apart, so the training loop averages them every
                 `settle_every` steps (section 5, last paragraph).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import policies
from ...partial_allreduce.eager_mean import EagerMean
from ...support.device_arrays import why_staged
from ..arrays import module_of
from ..reductions import average as average_over_all
from .base import GradientSynchronizer, Outcome, Simulated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...partial_allreduce.eager_mean import DivideBy
    from ...support.typing import Late, Missed
    from ..models.base import Model

DEFAULT_POLICY = "quorum"


class Eager(GradientSynchronizer):
    """Eager-SGD, with sums divided by all ranks ("world", as in the paper), or those in the round ("contributors")."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        policy: policies.Policy | str = DEFAULT_POLICY,
        missed: Missed = "sum",
        divide_by: DivideBy = "world",
        late: Late = "accumulate",
        max_staleness: int | None = None,
        seed: int = policies.DEFAULT_SEED,
    ) -> None:
        self._comm = comm
        self._drifts = missed == "latest"
        self._mean = _kind_of_mean(model.gradient)(
            comm,
            model.gradient,
            divide_by=divide_by,
            missed=missed,
            policy=_policy(policy, seed),
            late=late,
            max_staleness=max_staleness,
            name="gradients",
        )
        self._gradient = module_of(model.gradient).empty_like(model.gradient)  # the newest mean

    @classmethod
    def why_staged(cls) -> str:
        return why_staged()

    @classmethod
    def for_fewer(cls, ranks: int, **options: Any) -> dict[str, Any]:
        option = options.get("policy")
        if option is not None:
            policy = _policy(option, policies.DEFAULT_SEED)
            fewer = policy.for_survivors(ranks)
            if fewer != policy:
                options["policy"] = fewer
                if isinstance(option, str) and isinstance(fewer, policies.AnyOf | policies.AllOf):
                    options["policy"] = f"{option.partition(':')[0]}:{fewer.m}"  # it gets the training's seed later
        return options

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        policy = _policy(options.get("policy", DEFAULT_POLICY), options["seed"])
        said = {key: options[key] for key in options if key in ("late", "max_staleness")}
        return Simulated("allreduce", {"policy": policy, **said})

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean of the gradients that have arrived."""
        info = self._mean.contribute(gradient).wait()
        self.outcome = Outcome(info.active, late=not info.included, missed=info.missed)
        mean: NDArray[np.float32] = self._mean.write_to(self._gradient)
        return mean

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float] | None:
        """Return the weights if replicas drift apart, otherwise None."""
        return (weights, 1.0) if self._drifts else None

    def leave(self) -> None:
        self._mean.start_flush()

    def owed(self) -> NDArray[np.float32] | None:
        """Return the mean of the pending gradients of all ranks. None if no gradient was pending."""
        return self._mean.write_to(self._gradient) if self._mean.flush() else None

    def equalize(self, weights: NDArray[np.float32]) -> None:
        average_over_all(self._comm.mpi_comm, weights)

    def close(self) -> None:
        self._mean.leave()


def _kind_of_mean(gradient: Any) -> type[EagerMean]:
    if isinstance(gradient, np.ndarray):
        return EagerMean
    from ...torch import means

    return means.DeviceMean


def _policy(policy: policies.Policy | str, seed: int) -> policies.Policy:
    return policy if isinstance(policy, policies.Policy) else policies.parse(str(policy), seed=seed)
