"""Ripples: a rank updates its weights, then averages them in a group that a generator forms (sections 3 to 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import groups as generators
from ...support.device_arrays import why_staged
from .base import Outcome, WeightSynchronizer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...groups import AnyGroups
    from ...partial_reduce.collective import PartialReduce
    from ..models.base import Model


class Ripples(WeightSynchronizer):
    """Ripples with random, smart, punctual or static `groups`, and a P-Reduce every `every` steps (Fig. 16).

    `size` is the number of members of a group, by default 3 as in the paper, or 2 if there are only 2 ranks. The rule
    of static groups uses `ranks_per_node`, by default the communicator's value.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        groups: str = "smart",
        size: int | None = None,
        every: int = 1,
        ranks_per_node: int | None = None,
        seed: int = 0,
    ) -> None:
        members = min(3, max(2, comm.size)) if size is None else size
        known: dict[str, Callable[[], AnyGroups]] = {
            "random": lambda: generators.RandomGroups(members, seed=seed),
            "smart": lambda: generators.SmartGroups(members, seed=seed),
            "punctual": lambda: generators.PunctualGroups(members, seed=seed),
            "static": lambda: generators.StaticGroups(
                comm.ranks_per_node if ranks_per_node is None else ranks_per_node
            ),
        }
        if groups not in known:
            raise ValueError(f"groups: expected one of {', '.join(known)}; got {groups!r}")
        if every < 1:
            raise ValueError(f"every: expected at least 1 step, got {every}")
        super().__init__(comm)
        self._model = model
        self._groups = known[groups]()
        self._every = every
        self._weights = self._join()

    @classmethod
    def for_fewer(cls, ranks: int, **options: Any) -> dict[str, Any]:
        return {**options, "size": min(options["size"], max(2, ranks))} if "size" in options else options

    @classmethod
    def why_staged(cls) -> str:
        return why_staged()

    def average(self, weights: NDArray[np.float32], number: int) -> None:
        """Average the weights with this rank's next group, every `every` steps."""
        self.outcome = Outcome()
        if (number + 1) % self._every == 0:
            # Not `number`: static groups need the same count on all ranks, whose steps may differ after a stop.
            info = self._weights.average(weights)
            self.outcome = Outcome(active=len(info.group))

    def leave(self) -> None:
        """Leave: groups that contain this rank complete with its current weights."""
        self._weights.leave()

    def rejoin(self) -> None:
        self._weights = self._join()

    def close(self) -> None:
        self._weights.leave()

    def _join(self) -> PartialReduce:
        return self.comm.partial_reduce(self._model.weights, groups=self._groups, name="weights")
