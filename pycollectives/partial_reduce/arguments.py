"""The arguments of a partial reduce: checks on one rank, and a form that ranks can compare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from ..arguments import FLOATS, Arguments, Template, as_given, compared_as, creation, one_of, template
from ..groups import AnyGroups, GeneratedGroups, StaticGroups, as_groups
from ..selection import tables
from ..support import operations
from ..support.validation import checked_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..selection.choice import SelectionTable
    from ..selection.model import CostModel
    from ..support.typing import Op

SHORTEST_ON_BOARD = 1 << 16
"""The least bytes for which a group on one node uses shared memory. For fewer bytes, messages are faster (measured with
2, 4 and 8 members on 2 cores). Groups on devices always use it."""


def explicit_group_algorithm(
    table: SelectionTable | CostModel, group: Sequence[int], nodes: Sequence[int], nbytes: int
) -> str:
    """Return "board" to reduce in shared memory, or the table's schedule of messages; the same on all members."""
    if nbytes >= SHORTEST_ON_BOARD and len({nodes[member] for member in group}) == 1:
        return "board"
    return group_algorithm(table, len(group), nbytes)


def group_algorithm(table: SelectionTable | CostModel, members: int, nbytes: int) -> str:
    """Return a table's schedule of messages among `members` ranks."""
    schedule = table.complete(False, ranks=members, nodes=members, nbytes=nbytes).schedule
    if schedule is None:
        raise AssertionError("expected a schedule for ranks that share no memory, got None")
    return schedule


def _groups(groups: AnyGroups | str) -> AnyGroups:
    given = as_groups(groups, creation().numbered)
    if creation().original_size is None or isinstance(given, StaticGroups):
        return given
    return replace(given, size=max(2, min(given.size, creation().group.size)))


def _op(op: Op) -> str:
    return operations.checked_op(op)


def _coordinator_rank(rank: int) -> int:
    return checked_rank("coordinator_rank", rank, creation().numbered)


@attrs.frozen
class PartialReduceArguments(Arguments):
    """Make a `PartialReduce`, which averages in groups that a generator forms; collective (Ripples, section 4).

    Parameters
    ----------
    like
        A buffer, or `[buffer, count, type]`, with the count and dtype of the weights.
    groups
        The groups: `SmartGroups()`, `PunctualGroups()`, `RandomGroups()` or `StaticGroups(n)` of
        `pycollectives.groups`; or a string for `pycollectives.groups.as_groups`, such as "smart", "random:4" or
        "static:8".
    op
        As for `partial_allreduce`; AVG divides by the number of members.
    coordinator_rank
        The rank whose engine runs the generator in the background. It is also a worker like the others.
    weighting
        "uniform": all members have the same weight. "staleness" (only for `op` AVG of floats): a member has the weight
        1 / (1 + s) if it is s steps behind the newest step that the generator knew of when the group started.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "partial_reduce"

    like: Template = attrs.field(converter=template)
    groups: AnyGroups = attrs.field(default=as_given("smart"), kw_only=True, converter=_groups)
    op: str = attrs.field(default=operations.AVG, kw_only=True, converter=_op)
    coordinator_rank: int = attrs.field(default=0, kw_only=True, converter=_coordinator_rank)
    weighting: Literal["uniform", "staleness"] = attrs.field(
        default="uniform", kw_only=True, validator=one_of("uniform", "staleness")
    )
    table: SelectionTable | CostModel = attrs.field(init=False, metadata=compared_as(tables.describe))

    def __attrs_post_init__(self) -> None:
        """Check arguments that depend on each other, and select the table of algorithms."""
        buffer = self.like.buffer
        operations.checked_op_on(self.op, buffer.dtype)
        if self.like.device is not None:
            operations.check_op_on_device(self.op, buffer.dtype)
        if self.weighting == "staleness":
            if self.op != operations.AVG or buffer.dtype.name not in FLOATS:
                raise ValueError(f"weighting='staleness': expected op AVG of floats, got {self.op} of {buffer.dtype}")
            if isinstance(self.groups, StaticGroups):
                raise ValueError("weighting: expected 'uniform' under StaticGroups: all members are in the same step")
        object.__setattr__(self, "table", tables.for_costs(creation().group.costs))

    def for_plans(self, size: int) -> dict[str, Any]:
        """Return the engine's arguments that determine the message plans of groups, for `size` ranks."""
        buffer = self.like.buffer
        nbytes = buffer.count * buffer.dtype.itemsize
        return {
            "count": buffer.count,
            "dtype_name": buffer.dtype.name,
            "op": self.op,
            "by_staleness": self.weighting == "staleness",
            "algorithms": [group_algorithm(self.table, max(members, 2), nbytes) for members in range(size + 1)],
        }

    def for_engine(self, nodes: Sequence[int]) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective, for ranks on `nodes`."""
        buffer, device = self.like.buffer, self.like.device
        on_board = device is not None or buffer.count * buffer.dtype.itemsize >= SHORTEST_ON_BOARD
        return {
            **self.for_plans(len(nodes)),
            "generator": self.groups.machine(nodes) if isinstance(self.groups, GeneratedGroups) else None,
            "coordinator_rank": self.coordinator_rank,
            "nodes": nodes if on_board else range(len(nodes)),
            "name": self.name,
            **({} if device is None else {"device": device}),
        }
