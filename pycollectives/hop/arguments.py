"""The arguments of Hop, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..support import buffers
from ..support.validation import checked_choice, checked_integer, checked_name
from ..topology.arguments import checked_topology, described
from ..topology.graph import Topology
from .modes import Mode, NotifyAck, Skip, Standard, parse

__all__ = ["HopSpecification"]

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPUTATIONS = ("parallel", "serial")
LONGEST_GAP = 1 << 16
"""More sub-queues than any model leaves memory for."""


@dataclass(frozen=True)
class HopSpecification:
    """The arguments of `Communicator.hop` after all checks that need no other rank."""

    buffer: buffers.BufferDescription
    topology: Topology
    max_ig: int
    mode: Mode
    skip: Skip | None
    computation: str
    name: str

    @classmethod
    def checked(
        cls,
        like: Any,
        *,
        topology: Any,
        max_ig: Any,
        mode: Any,
        skip: Any,
        computation: Any,
        name: Any,
        size: int,
    ) -> HopSpecification:
        """Check the arguments for `size` ranks.

        Raises
        ------
        ValueError, TypeError, BufferError
            State the argument, what was expected and what was got.
        """
        buffer = buffers.describe(like)
        if buffer.dtype.name not in FLOATS:
            raise TypeError(f"like: expected elements of {', '.join(FLOATS)}, got {buffer.dtype}")
        graph = checked_topology(topology, size)
        if not isinstance(graph, Topology):
            raise TypeError(f"topology: expected a graph that does not vary in time, got {graph!r}")
        graph.check_connected()
        if graph.default_weights == "given":
            raise ValueError(
                f"topology: expected a graph without weights, since averages are plain means (Hop, Fig. 4), got "
                f"{graph!r}; give its edges: pc.Topology(size, edges)"
            )
        if isinstance(mode, str):
            mode, skip = parsed_mode(mode, skip)
        return cls(
            buffer,
            graph,
            checked_integer("max_ig", max_ig, at_least=1, at_most=LONGEST_GAP),
            checked_mode(mode, graph),
            checked_skip(skip, mode),
            checked_choice("computation", computation, COMPUTATIONS),
            checked_name(name),
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "topology": described(self.topology),
            "max_ig": self.max_ig,
            "mode": repr(self.mode),
            "skip": repr(self.skip),
            "computation": self.computation,
            "name": self.name,
        }

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments as the engine takes them."""
        ranks = range(self.topology.size)
        return {
            **self.mode.engine_arguments(),
            "count": self.buffer.count,
            "dtype_name": self.buffer.dtype.name,
            "max_ig": self.max_ig,
            "skip": None if self.skip is None else (self.skip.max_jump, self.skip.trigger),
            "serial": self.computation == "serial",
            "in_neighbors": [self.topology.in_neighbors(rank) for rank in ranks],
            "out_neighbors": [self.topology.out_neighbors(rank) for rank in ranks],
            "name": self.name,
        }


def parsed_mode(text: str, skip: Any) -> tuple[Any, Any]:
    """Return the mode and `skip` that a text names; `ValueError` if there is a `skip` beside it."""
    try:
        mode, named_skip = parse(text)
    except ValueError as error:
        raise ValueError(f"mode: {error}") from None
    if named_skip is not None and skip is not None:
        raise ValueError(f"skip: expected None, since mode={text!r} says when iterations are skipped, got {skip!r}")
    return mode, skip if named_skip is None else named_skip


def checked_mode(mode: Any, topology: Topology) -> Mode:
    """Return a mode for a graph; `ValueError` or `TypeError`."""
    if not isinstance(mode, Mode) or type(mode) is Mode:
        raise TypeError(f"mode: expected one such as Standard(), BackupWorkers(1) or 'backup:1', got {mode!r}")
    checked: Mode = mode
    rank = min(range(topology.size), key=lambda r: len(topology.in_neighbors(r)))
    fewest = len(topology.in_neighbors(rank))
    if checked.backup > fewest and topology.size > 1:
        raise ValueError(f"{mode!r}: expected n <= {fewest}, the in-neighbors of rank {rank} in {topology!r}")
    return checked


def checked_skip(skip: Any, mode: Mode) -> Skip | None:
    """Return when iterations are skipped in a mode; `ValueError` or `TypeError`."""
    if skip is None:
        return None
    if not isinstance(skip, Skip):
        raise TypeError(f"skip: expected None or Skip(max_jump, trigger), got {skip!r}")
    if isinstance(mode, Standard | NotifyAck):
        raise ValueError(
            f"skip: expected None under {mode!r}, in which no rank is more than one iteration behind its "
            f"out-neighbors, got {skip!r}; use BackupWorkers(n) or BoundedStaleness(s)"
        )
    return skip
