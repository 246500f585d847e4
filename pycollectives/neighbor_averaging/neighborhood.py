"""What the synchronous averages with neighbors share: their arguments, and a step of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..collective import WithoutFlush
from ..support import buffers
from ..support.device_arrays import describe_device
from ..support.validation import checked_name
from ..topology.arguments import described
from .model import checked_model, readable_array, writable_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec
    from ..topology.arguments import AnyTopology

__all__ = ["Neighborhood", "NeighborhoodSpecification"]


@dataclass(frozen=True)
class NeighborhoodSpecification:
    """The arguments of an average with neighbors after all checks that need no other rank.

    Attributes
    ----------
    buffer
        Shape and element type of the model.
    topology
        Who is whose neighbor, in each step.
    weights
        The kind of weights, as `topology.Topology.matrix` takes them.
    overlap
        How many steps later what is sent counts.
    """

    buffer: buffers.BufferDescription
    topology: AnyTopology
    weights: str
    overlap: int
    name: str

    @classmethod
    def checked(
        cls, like: Any, *, topology: AnyTopology, weights: str, overlap: int, name: object
    ) -> NeighborhoodSpecification:
        """Check what does not depend on the method; raises what is wrong with an argument."""
        if describe_device(like) is not None:
            raise BufferError(
                f"like: expected host memory, got {type(like).__name__} on a device: copy it to the host first, or use "
                "pairwise_averaging, which takes arrays on CUDA devices where `python -m pycollectives info` lists some"
            )
        return cls(checked_model(like), topology, weights, overlap, checked_name(name))

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "topology": described(self.topology),
            "weights": self.weights,
            "overlap": self.overlap,
            "name": self.name,
        }

    def steps_of(self, rank: int) -> list[tuple[float, list[tuple[int, float]], list[tuple[int, float]]]]:
        """Return the neighbors of a rank in each step of the period, with their weights, as the engine takes them."""
        steps = []
        for step in range(self.topology.period):
            graph = self.topology.at(step)
            own, taken = graph.weights_of(rank, self.weights)
            _, given = graph.shares_of(rank, self.weights)
            steps.append((own, sorted(taken.items()), sorted(given.items())))
        return steps


class Neighborhood(WithoutFlush):
    """An average with neighbors, step by step; a derived class says which.

    One thread at a time. Ranks may make different numbers of steps: a rank that closes it takes part in no further
    step, and its neighbors go on without it.
    """

    _call: ClassVar[str]  # as messages name it
    _push_sum: ClassVar[bool]

    _specification: NeighborhoodSpecification

    def __init__(self, specification: NeighborhoodSpecification, context: Context, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        self._specification = specification
        self._context = context
        self._collective: _core.Neighborhood = core.Neighborhood(
            context.engine,
            push_sum=self._push_sum,
            count=specification.buffer.count,
            dtype_name=specification.buffer.dtype.name,
            overlap=specification.overlap,
            steps=specification.steps_of(context.rank),
            nodes=context.nodes,
            timeout=deadline.remaining(),
            name=specification.name,
        )

    @classmethod
    def _make(cls, context: Context, name: object, check: Callable[[object], NeighborhoodSpecification]) -> Self:
        def check_with_name() -> NeighborhoodSpecification:
            return check(context.default_name(cls._call) if name is None else name)

        return context.make(cls._call, check_with_name, lambda agreed, deadline: cls(agreed, context, deadline))

    def start(self, w: BufferSpec) -> None:
        """Begin the next step with this rank's model; does not wait for another rank.

        Parameters
        ----------
        w
            C-contiguous host memory of the shape and dtype of `like`. It is copied: it may be changed at once. Several
            arrays: see `flatten`.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong shape; wrong dtype, or no buffer; not contiguous. Nothing is sent.
        RuntimeError
            The step before has not been waited for, or another thread is in a call of this object.
        ClosedError
            After `close`.
        """
        self._collective.start(buffers.as_bytes_exporter(self._readable(w)))

    def wait(self, out: BufferSpec | None = None, timeout: float | None = None) -> Array:
        """Wait for the step that was started; the result.

        Parameters
        ----------
        out
            Where to write it; None for a new array.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Not done in time: names the neighbors that have not come, and the step. `out` is unchanged, and `wait` may
            be called again.
        RankFailedError
            Ranks have died: names them.
        RuntimeError
            No step was started, or another thread is in a call of this object.
        ValueError, TypeError, BufferError, ClosedError
            As `start`.
        """
        return self._into(self._collective.wait, out, timeout)

    def final(self, out: BufferSpec | None = None, timeout: float | None = None) -> Array:
        """Return what this rank's model is after its last step; no call of another rank is needed besides its steps.

        It may be asked for after `close` too, as long as the communicator is open. With `overlap` it includes what has
        been sent to this rank for its next step: go on with the result of `wait`, not with this one, which would be
        counted twice.

        Parameters
        ----------
        out, timeout
            As for `wait`.

        Raises
        ------
        RuntimeError
            No step was started.
        StallError, RankFailedError, ValueError, TypeError, BufferError
            As `wait`.
        """
        return self._into(self._collective.final, out, timeout)

    @property
    def topology(self) -> AnyTopology:
        """Who is whose neighbor."""
        return self._specification.topology

    @property
    def weights(self) -> str:
        """The kind of weights."""
        return self._specification.weights

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the model."""
        return self._specification.buffer.dtype

    @property
    def count(self) -> int:
        """Elements of the model."""
        return self._specification.buffer.count

    @property
    def steps(self) -> int:
        """How many steps this rank has started."""
        return self._collective.steps

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name!r} of {self.count} {self.dtype} on {self.topology!r}{state}>"

    def _readable(self, w: BufferSpec) -> Array:
        return readable_array(w, self._specification.buffer, self.name)

    def _writable(self, out: BufferSpec | None) -> Array:
        if out is None:
            return np.empty(self._specification.buffer.shape, self.dtype)
        return writable_array(out, self._specification.buffer, self.name)

    def _into(self, call: Callable[..., None], out: BufferSpec | None, timeout: float | None) -> Array:
        limit = self._context.limit(timeout)
        array = self._writable(out)
        call(buffers.as_bytes_exporter(array), timeout=limit)
        return array
