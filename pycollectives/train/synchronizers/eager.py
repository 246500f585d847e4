"""Eager-SGD: gradients are averaged by a partial allreduce that waits for few ranks or none (section 5, Algorithm 2).

A gradient that comes too late is added to this rank's next one. What a rank does with rounds that it has missed:

missed="latest"  only the newest counts, so replicas drift apart and are averaged every few epochs (section 5, last
                 paragraph): the loop's `settle_every`.
missed="sum"     the rank is given the sum of all that it missed. With an update rule that is linear in the gradient,
                 such as SGD without momentum at a constant rate, replicas differ by rounding only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...partial_allreduce import policies
from .base import Outcome, Synchronizer, average

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ..models.base import Model

__all__ = ["DEFAULT_POLICY", "Eager"]

DEFAULT_POLICY = "majority"


class Eager(Synchronizer):
    """`average`: divide by all ranks ("world", as in the paper), or by those in the round ("contributors")."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        policy: policies.Policy | str = DEFAULT_POLICY,
        missed: Literal["latest", "sum"] = "latest",
        average: Literal["world", "contributors"] = "world",
        late: Literal["accumulate", "replace", "drop"] = "accumulate",
        max_staleness: int | None = None,
        seed: int = policies.DEFAULT_SEED,
    ) -> None:
        if average not in ("world", "contributors"):
            raise ValueError(f"average: expected 'world' or 'contributors', got {average!r}")
        self._comm = comm.mpi_comm
        self._divisor = comm.size if average == "world" else 1
        self._sums = missed == "sum"
        self._gradients = comm.partial_allreduce(
            like=model.gradient,
            op="SUM" if average == "world" else "AVG",
            policy=_policy(policy, seed),
            late=late,
            missed=missed,
            max_staleness=max_staleness,
            name="gradients",
        )
        self._mean = np.empty_like(model.gradient)

    @classmethod
    def simulated(cls, **options: Any) -> dict[str, Any] | None:
        """Rounds of the policy."""
        policy = _policy(options.get("policy", DEFAULT_POLICY), options["seed"])
        return {"policy": policy, **{key: options[key] for key in options if key in ("late", "max_staleness")}}

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the newest mean, of those gradients that are there."""
        info = self._gradients.contribute(gradient).wait()
        self.outcome = Outcome(info.active, late=not info.included, missed=info.missed)
        return self._result()

    def leave(self) -> None:
        """Begin the flush."""
        self._gradients.start_flush()

    def flush(self) -> NDArray[np.float32] | None:
        """Return the mean of all that still waited, of every rank; None if nothing did, which is no gradient of 0."""
        info = self._gradients.flush()
        return self._result() if info.contributors or (self._sums and info.missed) else None

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Average the models."""
        average(self._comm, weights)

    def close(self) -> None:
        """Leave the partial allreduce."""
        self._gradients.close()

    def _result(self) -> NDArray[np.float32]:
        return np.divide(self._gradients.result, self._divisor, out=self._mean)


def _policy(said: policies.Policy | str, seed: int) -> policies.Policy:
    return said if isinstance(said, policies.Policy) else policies.parse(str(said), seed=seed)
