"""What the synchronous averages with neighbors add to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..collective import Factory
from .d_psgd import NeighborAveraging
from .push_sum import PushSum

if TYPE_CHECKING:
    from ..support.typing import BufferSpec
    from .neighborhood import AnyTopology

__all__ = ["NeighborhoodMethods"]


class NeighborhoodMethods(Factory):
    """Averaging with neighbors, step by step (D-PSGD, SGP)."""

    def neighbor_averaging(
        self, like: BufferSpec, *, topology: AnyTopology, weights: str = "metropolis", name: str | None = None
    ) -> NeighborAveraging:
        """Make a neighbor averaging, the exchange of D-PSGD; collective.

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, with the count and dtype of the model: float16, bfloat16, float32 or
            float64.
        topology
            Who averages with whom, of `pycollectives.topology`; it may change from step to step.
        weights
            As `Topology.matrix` takes them; rows sum to 1. "metropolis" needs a symmetric graph.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        RuntimeError
            The memory that ranks of a node share cannot be had.
        ClosedError
            The communicator is closed.
        """
        return self.create(NeighborAveraging, like=like, topology=topology, weights=weights, name=name)

    def push_sum(
        self,
        like: BufferSpec,
        *,
        topology: AnyTopology,
        overlap: int = 0,
        weights: str = "push-sum",
        name: str | None = None,
    ) -> PushSum:
        """Make a push-sum, the exchange of SGP, for directed graphs; collective.

        Parameters
        ----------
        like, topology, name
            As for `neighbor_averaging`.
        overlap
            1: what is sent in a step counts one step later, so that it travels while ranks compute. 0: at once.
        weights
            As `Topology.matrix` takes them; columns sum to 1.

        Raises
        ------
        ValueError, TypeError, BufferError, MismatchError, StallError, RuntimeError, ClosedError
            As `neighbor_averaging`.
        """
        return self.create(PushSum, like=like, topology=topology, overlap=overlap, weights=weights, name=name)
