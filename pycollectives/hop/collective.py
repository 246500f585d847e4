"""Hop: each rank's own model, averaged with those of its neighbors as far as they have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collective import WithoutFlush
from ..support import buffers
from ..support.validation import checked_integer, with_prefix
from .arguments import HopSpecification
from .modes import MOST, Standard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec
    from ..topology.graph import Topology
    from .modes import Mode, Skip

__all__ = ["Hop", "HopStatistics"]


@dataclass(frozen=True)
class HopStatistics:
    """What a rank has done so far; numbers of iterations and of updates.

    Attributes
    ----------
    iterations
        Iterations that ended with `step`.
    jumps
        How often it went on to a later iteration than the next.
    skipped
        The iterations that were left out.
    received
        Updates of neighbors that were averaged.
    stale
        Updates that had come and were discarded: too late, or overtaken by a newer one.
    unsent
        Updates that were not sent, since the receiver was past them (section 6.2).
    """

    iterations: int
    jumps: int
    skipped: int
    received: int
    stale: int
    unsent: int


class Hop(WithoutFlush):
    """Decentralized training in which ranks may be several iterations apart; made by `Communicator.hop`.

    Each rank has a model of its own, `parameters`. In every iteration it sends them to its out-neighbors, averages them
    with those that its in-neighbors have sent, and adds the caller's change: -rate * gradient, or what an optimizer
    makes of it. In which order, `computation` says; for which updates it waits, `mode`. Token queues keep a rank at
    most `max_ig` iterations ahead of each out-neighbor, so that the updates in a queue are never more than there is
    room for. (Luo et al., "Hop: Heterogeneity-aware Decentralized Training", ASPLOS 2019, Figs 4, 7, 8 and 9.)

    One thread at a time. Ranks may make different numbers of iterations: a rank that closes it takes part in no further
    one, and its neighbors go on without it.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.hop(like=w, topology=pc.topology.ring(comm.size), mode=pc.BackupWorkers(1)) as hop:
    ...         for k in hop.iterations(50):
    ...             hop.step(np.zeros(2))  # -rate * gradient at hop.parameters
    ...         return hop.parameters
    >>> models = run_ranks(3, program)  # at first 0, 1 and 2
    >>> bool(np.ptp(models) < 0.01)
    True
    """

    _specification: HopSpecification

    def __init__(self, specification: HopSpecification, like: BufferSpec, context: Context, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        self._specification = specification
        self._context = context
        given = buffers.matching_array(like, specification.buffer, exact_shape=False)
        model = np.array(given).reshape(specification.buffer.shape)
        self._parameters = model.view()
        self._parameters.flags.writeable = False
        self._next = 0
        self._collective: _core.Hop = core.Hop(
            context.engine,
            model=buffers.as_bytes_exporter(model),
            checks=context.checks.on,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            **specification.engine_arguments(),
        )

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: BufferSpec,
        topology: Topology | str = "ring-based",
        max_ig: int = 5,
        mode: Mode | str | None = None,
        skip: Skip | None = None,
        computation: str = "parallel",
        name: str | None = None,
    ) -> Self:
        """Make one, by the arguments of `Communicator.hop`; collective."""

        def check() -> HopSpecification:
            return HopSpecification.checked(
                like,
                topology=topology,
                max_ig=max_ig,
                mode=Standard() if mode is None else mode,
                skip=skip,
                computation=computation,
                name=context.default_name("hop") if name is None else name,
                size=context.size,
            )

        return context.make("hop", check, lambda agreed, deadline: cls(agreed, like, context, deadline))

    def iterations(self, steps: int, timeout: float | None = None) -> Iterator[int]:
        """Go through the next iterations; `step` ends each. A later call goes on where this one has ended.

        Yields the number of each iteration, from 0 over all calls. Under `skip` numbers may be left out, never the last
        one. Between two of them it waits for tokens of the out-neighbors, and for updates before a jump.

        Parameters
        ----------
        steps
            How many, those that are skipped included; at least 0.
        timeout
            Seconds, for each iteration; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError
            An argument is refused.
        StallError
            An iteration does not begin in time: names the neighbors and what they have not done. A new call goes on.
        RankFailedError
            Ranks have died: names them.
        RuntimeError
            `step` has not been called in the iteration before, or another thread is in a call of this object.
        ClosedError
            After `close`.
        """
        end = self._next + checked_integer("steps", steps, at_least=0, at_most=MOST)
        limit = self._context.limit(timeout)
        return self._until(end, limit)

    def _until(self, end: int, limit: float | None) -> Iterator[int]:
        while self._next < end:
            yield self._collective.enter(end - 1, timeout=limit)

    def step(self, delta: BufferSpec, timeout: float | None = None) -> None:
        """End the iteration: average the parameters with those of neighbors, and add `delta`.

        In the parallel graph parameters = average + delta, where the average is of what ranks had as the iteration
        began. In the serial one parameters = the average of (parameters + delta) (section 3.2).

        Parameters
        ----------
        delta
            The change of the parameters, such as -rate * gradient: C-contiguous host memory of the count and dtype of
            `like`.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong count; wrong dtype, or no buffer; not contiguous. Nothing is sent.
        StallError
            Not done in time: names the neighbors and what they have not done. `step` may be called again, with the same
            delta: it is added once.
        RankFailedError
            Ranks have died: names them.
        RuntimeError
            No iteration has begun, or another thread is in a call of this object.
        ClosedError
            After `close`.
        """
        limit = self._context.limit(timeout)
        try:
            array = buffers.matching_array(delta, self._specification.buffer, exact_shape=False)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None
        self._collective.step(buffers.as_bytes_exporter(array), timeout=limit)
        self._next = self._collective.iteration + 1

    @property
    def parameters(self) -> Array:
        """This rank's model, an array of the shape and dtype of `like`.

        It is the same read-only array all the time: `iterations` and `step` change it.
        """
        return self._parameters

    @property
    def iteration(self) -> int:
        """The iteration that this rank is in, from 0."""
        return self._collective.iteration

    @property
    def received(self) -> tuple[tuple[int, int], ...]:
        """What was averaged last besides the own parameters: pairs (rank, iteration), in the order of ranks."""
        return tuple(self._collective.received)

    @property
    def memory_bytes(self) -> int:
        """Memory for updates on their way to and from this rank, made at creation and touched as it is used.

        (max_ig + 1) updates of each in-neighbor; as many of its own if it has out-neighbors on other nodes; and what is
        said of them: 72 bytes for each update that it can receive, 128 for each in-neighbor, and 12 KiB at most.
        """
        return self._collective.memory_bytes

    def statistics(self) -> HopStatistics:
        """Return what this rank has done so far."""
        return HopStatistics(**self._collective.statistics())

    @property
    def topology(self) -> Topology:
        """Who sends updates to whom."""
        return self._specification.topology

    @property
    def mode(self) -> Mode:
        """For which updates it waits."""
        return self._specification.mode

    @property
    def skip(self) -> Skip | None:
        """When it skips iterations; None: never."""
        return self._specification.skip

    @property
    def max_ig(self) -> int:
        """How many iterations a rank may be ahead of an out-neighbor."""
        return self._specification.max_ig

    @property
    def computation(self) -> str:
        """The computation graph: "parallel" or "serial"."""
        return self._specification.computation

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the model."""
        return self._specification.buffer.dtype

    @property
    def count(self) -> int:
        """Elements of the model."""
        return self._specification.buffer.count

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        state = " closed" if self.closed else ""
        return f"<Hop {self.name!r} of {self.count} {self.dtype} on {self.topology!r}, {self.mode!r}{state}>"
