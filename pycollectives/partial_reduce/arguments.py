"""What a partial reduce is: its arguments, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..selection import tables
from ..support import buffers, operations
from ..support.device_arrays import describe_device, device_number
from ..support.validation import checked_choice, checked_name, checked_rank, with_prefix
from .generators import GeneratedGroups, StaticGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..selection.choice import SelectionTable
    from ..selection.model import CostModel
    from ..support.costs import Costs
    from ..support.typing import Array

__all__ = ["AnyGroups", "PartialReduceSpecification", "explicit_group_algorithm"]

WEIGHTINGS = ("uniform", "staleness")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SHORTEST_ON_BOARD = 1 << 16
"""Bytes from which a group meets in shared memory, if its members share a node: below, messages are handed over faster
(measured with 2, 4 and 8 members on 2 cores). On devices it always does."""

AnyGroups: TypeAlias = GeneratedGroups | StaticGroups
"""Who says the groups: a generator or a rule."""


def explicit_group_algorithm(
    table: SelectionTable | CostModel, group: Sequence[int], nodes: Sequence[int], nbytes: int
) -> str:
    """Return "board", in shared memory, or what a table takes for messages: the same on all members."""
    if nbytes >= SHORTEST_ON_BOARD and len({nodes[member] for member in group}) == 1:
        return "board"
    return group_algorithm(table, len(group), nbytes)


def group_algorithm(table: SelectionTable | CostModel, members: int, nbytes: int) -> str:
    """Return what a table takes for messages among so many ranks."""
    schedule = table.complete(False, ranks=members, nodes=members, nbytes=nbytes).schedule
    if schedule is None:
        raise AssertionError("ranks without a board have a schedule")
    return schedule


@dataclass(frozen=True)
class PartialReduceSpecification:
    """The arguments of `Communicator.partial_reduce` after all checks that need no other rank.

    Attributes
    ----------
    buffer
        Shape and element type of the weights.
    device
        The number of the CUDA device that this rank's weights are on; None: the host.
    table
        Says which algorithm serves a group, by its size.
    """

    buffer: buffers.BufferDescription
    device: int | None
    groups: AnyGroups
    op: str
    weighting: str
    coordinator_rank: int
    name: str
    table: SelectionTable | CostModel

    @classmethod
    def checked(
        cls,
        like: Any,
        *,
        groups: Any,
        op: Any,
        weighting: Any,
        coordinator_rank: Any,
        name: Any,
        size: int,
        costs: Costs | None = None,
    ) -> PartialReduceSpecification:
        """Check the arguments for `size` ranks whose messages have these costs, if they are known.

        Raises
        ------
        ValueError, TypeError, BufferError
            State the argument, what was expected and what was got.
        """
        array = describe_device(like)
        device = None if array is None else device_number(array)
        buffer = buffers.describe(like) if array is None else buffers.BufferDescription(array.shape, array.dtype)
        if not isinstance(groups, (GeneratedGroups, StaticGroups)) or type(groups) is GeneratedGroups:
            raise TypeError(f"groups: expected an object such as SmartGroups() or StaticGroups(4), got {groups!r}")
        groups.check(size)
        op = operations.checked_op_on(op, buffer.dtype)
        if device is not None:
            operations.check_op_on_device(op, buffer.dtype)
        weighting = checked_choice("weighting", weighting, WEIGHTINGS)
        if weighting == "staleness":
            if op != operations.AVG or buffer.dtype.name not in FLOATS:
                raise ValueError(f"weighting='staleness': expected op AVG of floats, got {op} of {buffer.dtype}")
            if isinstance(groups, StaticGroups):
                raise ValueError("weighting='staleness': under StaticGroups all members are in the same step")
        coordinator = checked_rank("coordinator_rank", coordinator_rank, size)
        table = tables.for_costs(costs)
        return cls(buffer, device, groups, op, weighting, coordinator, checked_name(name), table)

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "memory": "host" if self.device is None else "CUDA device",
            "groups": repr(self.groups),
            "op": self.op,
            "weighting": self.weighting,
            "coordinator_rank": self.coordinator_rank,
            "name": self.name,
            "selection_table": tables.describe(self.table),
        }

    def writable(self, weights: object) -> Array:
        """Return the memory of weights that are to be averaged in place; raise if they are not ours."""
        try:
            return buffers.writable_array(weights, self.buffer)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None

    def readable(self, weights: object) -> Array:
        """Return the memory of weights that are only read."""
        try:
            return buffers.matching_array(weights, self.buffer, exact_shape=False)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None

    def plan_arguments(self, size: int) -> dict[str, Any]:
        """Return those of the engine's arguments that the plans of groups depend on, for `size` ranks."""
        nbytes = self.buffer.count * self.buffer.dtype.itemsize
        return {
            "count": self.buffer.count,
            "dtype_name": self.buffer.dtype.name,
            "op": self.op,
            "by_staleness": self.weighting == "staleness",
            "algorithms": [group_algorithm(self.table, max(members, 2), nbytes) for members in range(size + 1)],
        }

    @property
    def checked_device(self) -> int:
        """The number of the device, where there is one."""
        if self.device is None:
            raise AssertionError("host memory is on no device")
        return self.device

    def engine_arguments(self, nodes: Sequence[int]) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective, for ranks on `nodes`."""
        nbytes = self.buffer.count * self.buffer.dtype.itemsize
        generated = isinstance(self.groups, GeneratedGroups)
        on_board = self.device is not None or nbytes >= SHORTEST_ON_BOARD
        return {
            **self.plan_arguments(len(nodes)),
            "generator": self.groups.machine(nodes) if generated else None,  # type: ignore[union-attr]
            "coordinator_rank": self.coordinator_rank,
            "nodes": nodes if on_board else range(len(nodes)),
            "name": self.name,
            **({} if self.device is None else {"device": self.device}),
        }
