"""Hop: each rank has a model, which it averages with the neighbors' updates that have arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from ..collective import Collective, Statistics
from ..support import buffers
from ..support.validation import checked_integer
from .arguments import HopArguments
from .continuing import ContinuingHop, engine_side
from .modes import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec
    from ..topology.graph import Topology
    from .modes import Mode, Skip


@dataclass(frozen=True, kw_only=True)
class HopStatistics(Statistics):
    """Counters of one rank, in iterations and updates; `Hop.statistics` returns them.

    Attributes
    ----------
    iterations
        Iterations that ended with `step`.
    jumps
        Jumps past the next iteration.
    skipped
        Iterations that jumps skipped.
    received
        Updates of neighbors that were averaged.
    stale
        Updates that were discarded because they arrived too late, or after a newer one.
    unsent
        Updates that were not sent, because the receiver was already past their iteration (section 6.2).
    """

    iterations: int
    jumps: int
    skipped: int
    received: int
    stale: int
    unsent: int


class Hop(Collective[HopArguments]):
    """Decentralized training in which ranks may be several iterations apart; made by `Communicator.hop`.

    Each rank has its own model, `parameters`. In every iteration it sends the parameters to its out-neighbors, averages
    them with those of its in-neighbors, and adds the caller's change, such as -rate * gradient or an optimizer's step.
    `computation` sets the order of these steps, and `mode` the updates for which a rank waits. Token queues keep a rank
    at most `max_ig` iterations ahead of each out-neighbor, so that update queues never overflow. (Luo et al., "Hop:
    Heterogeneity-aware Decentralized Training", ASPLOS 2019, Figs 4, 7, 8 and 9.)

    Only one thread at a time may use the object. Ranks may make different numbers of iterations: after a rank leaves,
    its neighbors continue without it.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.hop(w, topology="ring", mode="backup:1") as hop:
    ...         for k in hop.iterations(50):
    ...             hop.step(np.zeros(2))  # -rate * gradient at hop.parameters
    ...         return hop.parameters
    >>> models = run_ranks(3, program)  # initially 0, 1 and 2
    >>> bool(np.ptp(models) < 0.01)
    True
    """

    arguments = HopArguments
    _collective: _core.Hop

    def __init__(self, context: Context, arguments: HopArguments, deadline: Deadline) -> None:
        super().__init__(context, arguments, deadline)
        given = buffers.matching_array(arguments.initial.array, arguments.initial.buffer)
        model = np.array(given).reshape(arguments.initial.buffer.shape)
        self._parameters = model.view()
        self._parameters.flags.writeable = False
        self._next = 0
        if context.membership is None:
            self._collective = engine_side(context, model, deadline, arguments.for_engine())
        else:
            self._collective = cast("_core.Hop", ContinuingHop(context, arguments, deadline, model=model))

    def iterations(self, steps: int, *, timeout: float | None = None) -> Iterator[int]:
        """Iterate over the next iterations; call `step` once in each. A later call continues where this one ended.

        Each iteration waits for tokens from the out-neighbors before it begins, and a jump also for updates.

        Parameters
        ----------
        steps
            The number of iterations, including skipped ones; at least 0.
        timeout
            Seconds for each iteration; None for the communicator's default, `math.inf` for no limit.

        Yields
        ------
        int
            The number of the iteration, counted from 0 over all calls. Under `skip`, numbers may be left out, but never
            the last one.

        Raises
        ------
        ValueError, TypeError
            An argument is refused.
        StallError
            An iteration does not begin in time. The message names the neighbors and their missing steps. Call
            `iterations` again to continue.
        RankFailedError
            Ranks have died; the message names them.
        RuntimeError
            `step` was not called in the last iteration, or another thread is in a call of this object.
        ClosedError
            This rank has left.
        """
        self._next = max(self._next, self._begins_at)
        end = self._next + checked_integer("steps", steps, at_least=0, at_most=MOST)
        limit = self._context.limit(timeout)
        return self._until(end, limit)

    def _until(self, end: int, limit: float | None) -> Iterator[int]:
        while self._next < end:
            yield self._collective.enter(end - 1, timeout=limit)

    def step(self, delta: BufferSpec, *, timeout: float | None = None) -> None:
        """End the iteration: average the parameters with the neighbors', and add `delta`.

        In the parallel graph, parameters = average + delta, where the average is over the parameters at the beginning
        of the iteration. In the serial graph, parameters = average of (parameters + delta) (section 3.2).

        Parameters
        ----------
        delta
            The change of the parameters, such as -rate * gradient: C-contiguous host memory of the count and dtype of
            the parameters.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError
            `delta` has a wrong count or dtype, is not a buffer, or is not contiguous. Nothing is sent.
        StallError
            The step is not complete in time. The message names the neighbors and their missing steps. Call `step` again
            with the same `delta`: it is added only once.
        RankFailedError
            Ranks have died; the message names them.
        RuntimeError
            No iteration has begun, or another thread is in a call of this object.
        ClosedError
            This rank has left.
        """
        limit = self._context.limit(timeout)
        array = buffers.matching_array(delta, self._arguments.initial.buffer, name=self.name)
        self._collective.step(buffers.as_bytes_exporter(array), timeout=limit)
        self._next = self._collective.iteration + 1

    @property
    def parameters(self) -> Array:
        """This rank's model: an array with the shape and dtype of `initial`.

        It is always the same read-only array; `iterations` and `step` change its values.
        """
        return self._parameters

    @property
    def iteration(self) -> int:
        """This rank's current iteration, from 0. A rank that replaces a dead one begins at a survivor's iteration."""
        return self._collective.iteration

    @property
    def received(self) -> tuple[tuple[int, int], ...]:
        """The neighbors' updates in the last average, as pairs (rank, iteration) in the order of ranks."""
        return tuple(self._collective.received)

    def statistics(self) -> HopStatistics:
        """Return this rank's counters; local, without communication.

        `memory_bytes` counts the buffers of updates to and from this rank, which are allocated at creation and touched
        when first used: (max_ig + 1) updates from each in-neighbor, and (max_ig + 1) of its own if it has out-neighbors
        on other nodes. To this it adds 72 bytes for each update that the rank can receive, 128 for each in-neighbor,
        and at most 12 KiB.
        """
        return HopStatistics(**self._collective.statistics())

    @property
    def topology(self) -> Topology:
        """The graph along which ranks send updates."""
        return self._arguments.topology

    @property
    def mode(self) -> Mode:
        """The mode: the updates for which a rank waits."""
        return self._arguments.mode

    @property
    def skip(self) -> Skip | None:
        """The rule for skipping iterations; None if no iterations are skipped."""
        return self._arguments.skip

    @property
    def max_ig(self) -> int:
        """The largest number of iterations by which a rank can be ahead of an out-neighbor."""
        return self._arguments.max_ig

    @property
    def computation(self) -> str:
        """The computation graph: "parallel" or "serial"."""
        return self._arguments.computation

    def _choices(self) -> list[str]:
        return ["on", f"{self.topology!r},", repr(self.mode)]
