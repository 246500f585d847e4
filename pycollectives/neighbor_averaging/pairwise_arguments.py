"""The arguments of pairwise averaging, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, SupportsFloat

from ..support.buffers import BufferDescription
from ..support.device_arrays import describe_device, device_number
from ..support.validation import checked_choice, checked_integer, checked_name
from ..topology.arguments import checked_topology, described
from ..topology.graph import Topology
from .model import checked_floats, checked_model

__all__ = ["PairwiseSpecification"]

PACES = ("continuous", "per_step")
ORDERS = ("random", "round-robin")
WEIGHTINGS = ("uniform", "frequency")
ATOMIC = ("segment", "model")
SEGMENT_BYTES = 64 << 10
"""Two segments are averaged in about 10 microseconds, for which `read` and `apply` may wait."""
SEGMENT_BYTES_ON_DEVICE = 4 << 20
"""What is done to a segment costs a launch and a poll, about 20 microseconds; longer ones are little slower."""


@dataclass(frozen=True)
class PairwiseSpecification:
    """The arguments of `Communicator.pairwise_averaging` after all checks that need no other rank.

    Attributes
    ----------
    buffer
        Shape and element type of the model, as calls have it.
    device
        The number of the CUDA device that this rank's model is on; None: the host.
    """

    buffer: BufferDescription
    device: int | None
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
        array = describe_device(like)
        if array is None:
            buffer, device = checked_model(like), None
        else:
            buffer, device = checked_floats(BufferDescription(array.shape, array.dtype)), device_number(array)
        graph = checked_topology(topology, size)
        if not isinstance(graph, Topology):
            raise TypeError(f"topology: expected a graph that does not vary in time, got {graph!r}")
        graph.check_symmetric()
        graph.check_connected()
        return cls(
            buffer,
            device,
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
            "memory": "host" if self.device is None else "CUDA device",
            "topology": described(self.topology),
            "pace": self.pace,
            "seed": self.seed,
            "acceleration": self.acceleration,
            "weighting": self.weighting,
            "atomic": self.atomic,
            "name": self.name,
        }

    def engine_arguments(self, rank: int) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective on a rank."""
        sides = self.topology.sides() if self.topology.is_bipartite else None
        return {
            "name": self.name,
            "count": self.buffer.count,
            "dtype_name": self.buffer.dtype.name,
            "segment_bytes": self._segment_bytes(),
            "neighbors": self.topology.in_neighbors(rank),
            "initiates": sides is None or rank in sides[0],  # the active set of AD-PSGD, section 3.3.1
            "random": self.order == "random",
            "seed": self.seed,
            "per_step": self.pace == "per_step",
            "period": 0.0 if self.rate is None else 1 / self.rate,
            "acceleration": self._acceleration(),
            "by_frequency": self.weighting == "frequency",
        }

    def _segment_bytes(self) -> int:
        """Return the length of a segment; 0: the model is one."""
        if self.atomic == "model":
            return 0
        return SEGMENT_BYTES if self.device is None else SEGMENT_BYTES_ON_DEVICE

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
