"""What this service adds to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..collective import Factory
from .collective import Hop

if TYPE_CHECKING:
    from ..support.typing import BufferSpec
    from ..topology.graph import Topology
    from .modes import Mode, Skip

__all__ = ["HopMethods"]


class HopMethods(Factory):
    """Decentralized training where ranks differ in speed: Hop."""

    def hop(
        self,
        like: BufferSpec,
        *,
        topology: Topology | str = "ring-based",
        max_ig: int = 5,
        mode: Mode | None = None,
        skip: Skip | None = None,
        computation: Literal["parallel", "serial"] = "parallel",
        name: str | None = None,
    ) -> Hop:
        """Make a Hop, decentralized training in which ranks may be several iterations apart; collective.

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64: this rank's initial
            parameters, which are copied.
        topology
            Who sends updates to whom: a graph of `pycollectives.topology`, connected, or its name. Averages are plain
            means, so that the mean over ranks is kept where all ranks have as many neighbors (section 3.1).
        max_ig
            At least 1: how many iterations a rank may be ahead of an out-neighbor, by token queues (section 4.2). A
            rank has memory for max_ig + 1 updates of each in-neighbor, and for as many copies of its own if it has
            out-neighbors on other nodes.
        mode
            `Standard()`, the default, `NotifyAck()`, `BackupWorkers(n)`, `BoundedStaleness(s)` or `Hybrid(n, s)`.
        skip
            `Skip(max_jump, trigger)`: a rank that is far behind skips iterations (section 5). Not under `Standard()`
            and `NotifyAck()`, which leave nobody behind.
        computation
            "parallel": updates are sent before gradients are computed, and travel meanwhile; "serial": afterwards, with
            the gradients in them (section 3.2).
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
        return self.create(
            Hop,
            like=like,
            topology=topology,
            max_ig=max_ig,
            mode=mode,
            skip=skip,
            computation=computation,
            name=name,
        )
