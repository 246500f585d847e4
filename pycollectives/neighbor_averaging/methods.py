"""What this service adds to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..collective import Factory
from .d_psgd import NeighborAveraging
from .pairwise import PairwiseAveraging
from .push_sum import PushSum

if TYPE_CHECKING:
    from ..support.typing import BufferSpec
    from ..topology.arguments import AnyTopology
    from ..topology.graph import Topology

__all__ = ["NeighborAveragingMethods"]


class NeighborAveragingMethods(Factory):
    """Averaging with neighbors in a graph: AD-PSGD, D-PSGD, SGP."""

    def pairwise_averaging(
        self,
        like: BufferSpec,
        *,
        topology: Topology | str = "bipartite-exponential",
        pace: Literal["continuous", "per_step"] = "continuous",
        rate: float | None = None,
        order: Literal["random", "round-robin"] = "random",
        seed: int = 0,
        acceleration: Literal["a2cid2"] | None = None,
        weighting: Literal["uniform", "frequency"] = "uniform",
        atomic: Literal["segment", "model"] = "segment",
        name: str | None = None,
    ) -> PairwiseAveraging:
        """Make a model that is averaged with one neighbor at a time, in the background; collective (AD-PSGD).

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64: this rank's initial model,
            which is copied. If it is an array on a CUDA device, the models of all ranks are on devices.
        topology
            Who averages with whom: a graph of `pycollectives.topology`, connected and symmetric, or its name. Between
            nodes only one side of a bipartite graph begins averages, so that none is declined (section 3.3.1).
        pace
            "continuous": again and again. "per_step": one for each `apply`.
        rate
            Under "continuous", the most averages per second that this rank begins. By default it rests for a
            millisecond, or for 30 times as long as an average on its node took.
        order
            Of neighbors: "random", as in the paper, or "round-robin".
        seed
            Of the neighbors drawn.
        acceleration
            "a2cid2": momentum between averages, for graphs in which averages spread slowly, such as rings (Nabli,
            Belilovsky and Oyallon 2023). Takes the memory of a second model.
        weighting
            "uniform": each `apply` counts alike, so that the common model leans towards the optima of ranks that apply
            more often. "frequency": it counts in proportion to the time between this rank's calls, over all ranks'
            mean.
        atomic
            "segment": parts of 64 KiB, on a device 4 MiB, are averaged one by one. "model": all of it under one lock,
            for comparison; `read` and `apply` then wait for whole averages.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Shape, `rate` and `order` may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        RuntimeError
            Memory that ranks share, or memory of a device, cannot be had, on this or another rank.
        ClosedError
            The communicator is closed.
        """
        return self.create(
            PairwiseAveraging,
            like=like,
            topology=topology,
            pace=pace,
            rate=rate,
            order=order,
            seed=seed,
            acceleration=acceleration,
            weighting=weighting,
            atomic=atomic,
            name=name,
        )

    def neighbor_averaging(
        self, like: BufferSpec, *, topology: AnyTopology | str, weights: str | None = None, name: str | None = None
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
            As `Topology.matrix` takes them; rows sum to 1. By default a graph's own ones, if it was given any, else
            "metropolis", which needs a symmetric graph.
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
        topology: AnyTopology | str,
        overlap: int = 0,
        weights: str | None = None,
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
            As `Topology.matrix` takes them; columns sum to 1. By default a graph's own ones, if it was given any, else
            "push-sum".

        Raises
        ------
        ValueError, TypeError, BufferError, MismatchError, StallError, RuntimeError, ClosedError
            As `neighbor_averaging`.
        """
        return self.create(PushSum, like=like, topology=topology, overlap=overlap, weights=weights, name=name)
