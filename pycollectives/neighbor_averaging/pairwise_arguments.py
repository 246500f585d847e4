"""The arguments of pairwise averaging, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

from ..support.validation import checked_choice, checked_integer, checked_name
from ..topology.arguments import checked_topology, described
from ..topology.graph import Topology
from .model import checked_model, readable_array, writable_array

if TYPE_CHECKING:
    from ..support import buffers
    from ..support.typing import Array

__all__ = ["PairwiseSpecification"]

PACES = ("continuous", "per_step")
ORDERS = ("random", "round-robin")
WEIGHTINGS = ("uniform", "frequency")
ATOMIC = ("segment", "model")
SEGMENT_BYTES = 64 << 10
"""Two segments are averaged in about 10 microseconds, for which `read` and `apply` may wait."""


@dataclass(frozen=True)
class PairwiseSpecification:
    """The arguments of `Communicator.pairwise_averaging` after all checks that need no other rank."""

    buffer: buffers.BufferDescription
    topology: Topology
    pace: str
    rate: float | None
    order: str
    seed: int
    acceleration: str | None
    weighting: str
    atomic: str
    name: str

    @classmethod
    def checked(
        cls,
        like: Any,
        *,
        topology: Any,
        pace: Any,
        rate: Any,
        order: Any,
        seed: Any,
        acceleration: Any,
        weighting: Any,
        atomic: Any,
        name: Any,
        size: int,
    ) -> PairwiseSpecification:
        """Check the arguments for `size` ranks.

        Raises
        ------
        ValueError, TypeError, BufferError
            State the argument, what was expected and what was got.
        """
        buffer = checked_model(like)
        graph = checked_topology(topology, size)
        if not isinstance(graph, Topology):
            raise TypeError(f"topology: expected a graph that does not vary in time, got {graph!r}")
        graph.check_symmetric()
        graph.check_connected()
        return cls(
            buffer,
            graph,
            checked_choice("pace", pace, PACES),
            checked_rate(rate, pace),
            checked_choice("order", order, ORDERS),
            checked_integer("seed", seed, at_least=0, at_most=2**64 - 1),
            None if acceleration is None else checked_choice("acceleration", acceleration, ("a2cid2",)),
            checked_choice("weighting", weighting, WEIGHTINGS),
            checked_choice("atomic", atomic, ATOMIC),
            checked_name(name),
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape, `rate` and `order` need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "topology": described(self.topology),
            "pace": self.pace,
            "seed": self.seed,
            "acceleration": self.acceleration,
            "weighting": self.weighting,
            "atomic": self.atomic,
            "name": self.name,
        }

    def readable(self, delta: object) -> Array:
        """Return the memory of a delta; raise if it is not of the model's count and type."""
        return readable_array(delta, self.buffer, self.name)

    def writable(self, out: object) -> Array:
        """Return the memory that a model is read into."""
        return writable_array(out, self.buffer, self.name)

    def engine_arguments(self, rank: int) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective on a rank."""
        sides = self.topology.sides() if self.topology.is_bipartite else None
        return {
            "name": self.name,
            "count": self.buffer.count,
            "dtype_name": self.buffer.dtype.name,
            "segment_bytes": 0 if self.atomic == "model" else SEGMENT_BYTES,
            "neighbors": self.topology.in_neighbors(rank),
            "initiates": sides is None or rank in sides[0],  # the active set of AD-PSGD, section 3.3.1
            "random": self.order == "random",
            "seed": self.seed,
            "per_step": self.pace == "per_step",
            "period": 0.0 if self.rate is None else 1 / self.rate,
            "acceleration": self._acceleration(),
            "by_frequency": self.weighting == "frequency",
        }

    def _acceleration(self) -> tuple[float, float] | None:
        """What is kept of x - x~ from one average to the next, and alpha~ (A2CiD2, sections 3.1 and 3.3).

        Time is counted in averages that a rank takes part in: then it needs no clock, and a slow network is no less
        accelerated.
        """
        if self.acceleration is None or self.topology.size == 1:
            return None
        chi1, chi2 = self.topology.chi()
        eta = 1 / (2 * math.sqrt(chi1 * chi2))
        return math.exp(-2 * eta), math.sqrt(chi1 / chi2) / 2


def checked_rate(rate: Any, pace: Any) -> float | None:
    """Return the most averages per second that a rank begins; `ValueError` or `TypeError`."""
    if rate is None:
        return None
    if isinstance(rate, (str, bool)) or not isinstance(rate, SupportsFloat):
        raise TypeError(f"rate: expected averages per second or None, got {rate!r}")
    number = float(rate)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"rate: expected a positive number of averages per second, got {rate!r}")
    if pace != "continuous":
        raise ValueError(f"rate: expected None under pace={pace!r}, which says when averages begin, got {rate!r}")
    return number
