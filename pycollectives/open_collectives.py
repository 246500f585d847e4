"""The collectives that are open on a communicator, which all ranks make in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .partial_allreduce.arguments import PartialAllreduceSpecification
from .partial_allreduce.collective import PartialAllreduce
from .partial_reduce.arguments import PartialReduceSpecification
from .partial_reduce.collective import PartialReduce
from .support.buffers import array_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from . import _core
    from .agreement.checking import NoChecks
    from .agreement.rendezvous import Rendezvous
    from .support.deadline import Deadline
    from .support.typing import BufferSpec

__all__ = ["Collectives"]


class Collectives:
    """One rank's collectives on an engine; each is served until it is closed."""

    def __init__(
        self,
        engine: _core.Engine,
        nodes: Sequence[int],
        rendezvous: Rendezvous,
        checks: NoChecks,
        timeout: float | None,
    ) -> None:
        """`nodes`: the node of each rank; `timeout`: for each flush, in seconds."""
        self._engine = engine
        self._nodes = nodes
        self._rendezvous = rendezvous
        self._checks = checks
        self._timeout = timeout
        self._created = 0
        self._open: dict[PartialAllreduce | PartialReduce, None] = {}  # in the order of creation

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    @property
    def names(self) -> list[str]:
        """Of those that are open, in the order of creation."""
        return [collective.name for collective in self._open]

    def partial_allreduce(
        self,
        call: str,
        like: Callable[[], object],
        *,
        count: object = None,
        dtype: object = None,
        name: object = None,
        **options: object,
    ) -> PartialAllreduce:
        """Make a partial allreduce; what `like` raises is a refusal of this rank that the others learn of."""
        from .support.native import core

        def check() -> PartialAllreduceSpecification:
            return PartialAllreduceSpecification.checked(
                like(),
                count=count,
                dtype=dtype,
                name=f"partial_allreduce[{self._created}]" if name is None else name,
                size=self._engine.size,
                algorithms=[str(algorithm["name"]) for algorithm in core.algorithms()],
                nodes=self._nodes,
                **options,
            )

        def build(specification: PartialAllreduceSpecification, deadline: Deadline) -> PartialAllreduce:
            of_engine = core.PartialAllreduce(
                self._engine,
                convert=specification.readable,
                writable=specification.writable,
                timeout=deadline.remaining(),
                **specification.engine_arguments(),
            )
            made = PartialAllreduce(
                self._checks.watched(of_engine, specification),
                specification,
                forget=self._forget,
                timeout=self._timeout,
            )
            self._enter(made)
            return made

        return self._rendezvous.make(call, check, build)

    def partial_reduce(self, like: BufferSpec, *, name: object, **options: object) -> PartialReduce:
        """Make a partial reduce."""
        from .support.native import core

        def check() -> PartialReduceSpecification:
            return PartialReduceSpecification.checked(
                like,
                name=f"partial_reduce[{self._created}]" if name is None else name,
                size=self._engine.size,
                **options,
            )

        def build(specification: PartialReduceSpecification, deadline: Deadline) -> PartialReduce:
            made = PartialReduce(
                core.PartialReduce(
                    self._engine, timeout=deadline.remaining(), **specification.engine_arguments(self._nodes)
                ),
                specification,
                weights=array_of(like),
                rank=self._engine.rank,
                size=self._engine.size,
                forget=self._forget,
            )
            self._enter(made)
            return made

        return self._rendezvous.make("partial_reduce", check, build)

    def _enter(self, made: PartialAllreduce | PartialReduce) -> None:
        self._created += 1
        self._open[made] = None

    def _forget(self, closed: PartialAllreduce | PartialReduce) -> None:
        self._open.pop(closed, None)

    def close(self, deadline: Deadline) -> None:
        """Flush and close all, in the order of creation."""
        for collective in tuple(self._open):  # no rank waits in one for a rank that waits in another's flush
            if isinstance(collective, PartialAllreduce) and not collective.closed:
                collective.start_flush()
        for collective in tuple(self._open):
            if isinstance(collective, PartialAllreduce) and not collective.closed:
                collective.flush(deadline.remaining())
            collective.close()

    def abort(self) -> int:
        """Close all at once; the number of contributions discarded."""
        return sum(collective.abort() for collective in tuple(self._open))
