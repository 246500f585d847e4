"""Group generators: which workers average with whom (Ripples, sections 4 and 5).

A generator is an immutable value, the same on all ranks. What depends on the communicator's size is checked when a
collective is created with it.

| generator | a group is |
|---|---|
| `RandomGroups(size, seed)` | drawn from all workers (Ripples 4.1) |
| `SmartGroups(size, seed)` | part of a division of all workers that are in none (Ripples 5) |
| `PunctualGroups(size, seed)` | of workers that are due at the same time (our own) |
| `StaticGroups(ranks_per_node)` | what a rule on rank and step says (Ripples 4.2) |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .support.validation import integer_field, number_field, seed_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._core import GroupGenerator

__all__ = [
    "AnyGroups",
    "GeneratedGroups",
    "PunctualGroups",
    "RandomGroups",
    "SmartGroups",
    "StaticGroups",
    "as_groups",
    "node_of_each",
]

USUAL_SIZE = 3
"""Members of a group where a text says none."""


def node_of_each(size: int, ranks_per_node: int) -> list[int]:
    """Return the node of each of `size` workers; the last node may have fewer.

    >>> node_of_each(5, 2)
    [0, 0, 1, 1, 2]
    """
    return [rank // ranks_per_node for rank in range(size)]


@dataclass(frozen=True)
class GeneratedGroups:
    """Base of the generators that a state machine executes, in one place for all workers."""

    size: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        integer_field(self, "size", at_least=2)
        integer_field(self, "seed", at_least=0)
        seed_field(self)

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this generator to the engine."""
        return {"size": self.size, "seed": self.seed}

    def check(self, size: int) -> None:
        """Raise `ValueError` if there cannot be a group of that size."""
        if self.size > size > 1:
            raise ValueError(f"{self!r}: expected a size of 2 to {size}, the number of workers, got {self.size}")

    def machine(self, node_of: Sequence[int]) -> GroupGenerator:
        """Return a new state machine for the workers whose nodes are given; it moves no data."""
        from .support.native import core

        return core.GroupGenerator(node_of, **self.engine_arguments())


@dataclass(frozen=True)
class RandomGroups(GeneratedGroups):
    """A group is its initiator and others drawn from all workers (Ripples 4.1).

    Mixes best, and conflicts: a worker may be drawn into several groups, which wait for each other.

    Parameters
    ----------
    size
        Members of a group, >= 2.
    seed
        0 <= seed < 2**64, the same on all ranks.
    group_buffer
        Whether a request is answered by a group that the worker is in already, if there is one (5.1), so that each
        synchronisation is one P-Reduce. If not, each request makes a group, and those before it are performed on the
        way, as in section 4.1.
    connectivity
        If so many of each worker's newest groups do not connect all workers that were in them, the next group is made
        to (P-Reduce, SIGMOD 2021); None: never looked at.

    >>> RandomGroups(size=4)
    RandomGroups(size=4, seed=0, group_buffer=True, connectivity=None)
    """

    kind: ClassVar[str] = "random"
    group_buffer: bool = True
    connectivity: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if self.connectivity is not None:
            integer_field(self, "connectivity", at_least=1)

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this generator to the engine."""
        more = {"group_buffer": self.group_buffer, "connectivity": self.connectivity or 0}
        return super().engine_arguments() | more


@dataclass(frozen=True)
class SmartGroups(GeneratedGroups):
    """A request divides all workers that are in no group into groups (Ripples 5): no conflicts.

    Parameters
    ----------
    size
        Members of a group, >= 2; a division that leaves one over makes a group of one more.
    seed
        0 <= seed < 2**64, the same on all ranks.
    inter_intra
        Whether a division makes two groups for each worker: one worker of each node with those of other nodes and the
        rest within their node, then all of a node (5.2). Fewer messages between nodes; but a slow worker holds its
        node's others (see `PunctualGroups`).
    slowdown_threshold
        Workers that have asked so many times less than the initiator are left out of its division (5.3); None: nobody
        is. A smaller one leaves a straggler out sooner, but as well who is behind by chance.
    group_buffer, global_division
        The mechanisms of section 5.1, to be switched off for comparison. Each needs those before it: inter_intra the
        division, that the buffer.
    connectivity
        As in `RandomGroups`.

    >>> SmartGroups(size=4, inter_intra=False).slowdown_threshold
    8
    """

    kind: ClassVar[str] = "smart"
    inter_intra: bool = True
    slowdown_threshold: int | None = 8
    group_buffer: bool = field(default=True, kw_only=True)
    global_division: bool = field(default=True, kw_only=True)
    connectivity: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        for name in ("slowdown_threshold", "connectivity"):
            if getattr(self, name) is not None:
                integer_field(self, name, at_least=1)
        if self.inter_intra and not self.global_division:
            raise ValueError("SmartGroups: inter_intra=True needs global_division=True")
        if self.global_division and not self.group_buffer:
            raise ValueError("SmartGroups: global_division=True needs group_buffer=True")

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this generator to the engine."""
        return super().engine_arguments() | {
            "inter_intra": self.inter_intra,
            "slowdown_threshold": self.slowdown_threshold or 0,
            "group_buffer": self.group_buffer,
            "global_division": self.global_division,
            "connectivity": self.connectivity or 0,
        }


@dataclass(frozen=True)
class PunctualGroups(GeneratedGroups):
    """A group is its initiator and workers that are due at the same time: nobody waits for a straggler.

    Our own rule, in place of sections 5.1 to 5.3 of Ripples; docs/groups.md says why. A worker is due one interval (a
    running mean of how long it computes) after its last group.

    Parameters
    ----------
    size
        Members of a group, >= 2; one more if only one more is due.
    seed
        0 <= seed < 2**64, the same on all ranks.
    tolerance
        Mates are drawn from those due within this fraction of the initiator's interval.
    patience
        If nobody is due, it waits for the first that will be within this fraction of its interval; if nobody will be,
        it is alone in its group.
    connectivity
        As in `RandomGroups`: classes of workers that are in step with themselves only are brought together.

    >>> PunctualGroups(size=4)
    PunctualGroups(size=4, seed=0, tolerance=0.1, patience=1.0, connectivity=8)
    """

    kind: ClassVar[str] = "punctual"
    tolerance: float = 0.1
    patience: float = 1.0
    connectivity: int | None = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        number_field(self, "tolerance")
        number_field(self, "patience")
        if self.connectivity is not None:
            integer_field(self, "connectivity", at_least=1)

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this generator to the engine."""
        return super().engine_arguments() | {
            "punctual": True,
            "tolerance": self.tolerance,
            "patience": self.patience,
            "connectivity": self.connectivity or 0,
        }


@dataclass(frozen=True)
class StaticGroups:
    """A rule says who averages with whom in which step (Ripples 4.2): no generator is asked, no conflicts.

    The rule of Fig. 10, generalised. Every four steps, with the workers of a node numbered from 0, n of them:

    ====  ======================  =============================  ===========================  ===================
    step  worker 0                worker 1                       the others                   worker n - 1
    ====  ======================  =============================  ===========================  ===================
    0     workers 0 of all nodes  nobody                         in pairs: 2 and 3, 4 and 5   (is one of those)
    1     all of the node         all                            all                          all
    2     worker n - 1            worker 1 of the opposite node  in pairs: 2 and 3            worker 0
    3     all of the node         all                            all                          all
    ====  ======================  =============================  ===========================  ===================

    - An odd one of the pairs joins the last pair; if there is none, nobody.
    - Nodes of one or two workers: their last one meets the opposite node in step 2.
    - The opposite node is half-way round the ring of nodes. Of an odd number of nodes, one has none, another every four
      steps, and joins a pair.

    A straggler holds everybody, sooner or later. A worker of which the table says "nobody" does not synchronise.

    Parameters
    ----------
    ranks_per_node
        Ranks 0 to `ranks_per_node` - 1 are the first node, and so on; the last one may have fewer.

    >>> StaticGroups(4).group_of(rank=0, step=0, size=16)
    (0, 4, 8, 12)
    >>> StaticGroups(4).group_of(rank=1, step=2, size=16)
    (1, 9)
    >>> StaticGroups(4).group_of(rank=1, step=0, size=16)
    (1,)
    """

    kind: ClassVar[str] = "static"
    ranks_per_node: int

    PHASES: ClassVar[int] = 4

    def __post_init__(self) -> None:
        """Check the field."""
        integer_field(self, "ranks_per_node", at_least=1)

    def check(self, size: int) -> None:
        """Do nothing: the rule serves every number of workers."""

    def group_of(self, rank: int, step: int, size: int) -> tuple[int, ...]:
        """Return the group of a worker in a step, ascending; alone if it does not synchronise.

        Pure: every member computes the same.
        """
        if not 0 <= rank < size:
            raise ValueError(f"expected 0 <= rank < {size}, got {rank}")
        if step < 0:
            raise ValueError(f"expected step >= 0, got {step}")
        cycle, phase = divmod(step, self.PHASES)
        node, local = divmod(rank, self.ranks_per_node)
        here = self._workers(node, size)
        if phase % 2 == 1:
            return tuple(here)
        if phase == 0:
            return tuple(range(0, size, self.ranks_per_node)) if local == 0 else _paired(rank, here[2:])
        if local == min(1, len(here) - 1):
            others = _opposite(node, self._nodes(size), cycle)
            return tuple(sorted(self._bridge(other, size) for other in others))
        return (here[0], here[-1]) if rank in (here[0], here[-1]) and len(here) > 2 else _paired(rank, here[2:-1])

    def groups(self, step: int, size: int) -> list[tuple[int, ...]]:
        """Return all groups of a step: a partition of the workers, in the order of their lowest ranks."""
        return sorted({self.group_of(rank, step, size) for rank in range(size)})

    def cycle(self, size: int) -> int:
        """Return after how many steps the groups repeat: four, or four for each node if their number is odd."""
        nodes = self._nodes(size)
        return self.PHASES * (nodes if nodes % 2 else 1)

    def _nodes(self, size: int) -> int:
        return -(-size // self.ranks_per_node)

    def _workers(self, node: int, size: int) -> range:
        first = node * self.ranks_per_node
        return range(first, min(first + self.ranks_per_node, size))

    def _bridge(self, node: int, size: int) -> int:
        """The worker of a node that meets the opposite node."""
        here = self._workers(node, size)
        return here[min(1, len(here) - 1)]


def _paired(rank: int, workers: Sequence[int]) -> tuple[int, ...]:
    """The group of `rank` among `workers` in pairs, an odd one with the last pair; alone if it is none of them."""
    if rank not in workers or len(workers) < 2:
        return (rank,)
    pair = min(workers.index(rank) // 2, len(workers) // 2 - 1)
    end = None if pair == len(workers) // 2 - 1 else 2 * pair + 2
    return tuple(workers[2 * pair : end])


def _opposite(node: int, nodes: int, cycle: int) -> list[int]:
    """The nodes that meet `node`, itself included: the one half-way round a ring that each cycle turns by a node."""
    half = nodes // 2
    place = (node + cycle) % nodes
    if half == 0:
        return [node]
    places = [place % half, place % half + half] if place < 2 * half else [half - 1, 2 * half - 1]
    if nodes % 2 and half - 1 in places:
        places.append(nodes - 1)
    return [(p - cycle) % nodes for p in places]


AnyGroups: TypeAlias = GeneratedGroups | StaticGroups
"""Who says the groups: a generator or a rule."""

GENERATORS: dict[str, type[GeneratedGroups]] = {
    "smart": SmartGroups,
    "punctual": PunctualGroups,
    "random": RandomGroups,
}


def as_groups(groups: object, size: int) -> AnyGroups:
    """Return who says the groups of `size` workers, given as an object, or as a text.

    "smart", "punctual" or "random", of 3 members or as many as there are workers, or with their number, such as
    "smart:4"; "static:N", with N ranks on each node.

    Raises
    ------
    TypeError, ValueError
        It is neither, or there cannot be such groups.

    >>> as_groups("static:4", 8)
    StaticGroups(ranks_per_node=4)
    """
    if isinstance(groups, str):
        groups = _parse(groups, size)
    if not isinstance(groups, (GeneratedGroups, StaticGroups)) or type(groups) is GeneratedGroups:
        raise TypeError(
            f"groups: expected an object such as SmartGroups() or StaticGroups(4), or its text, got {groups!r}"
        )
    groups.check(size)
    return groups


def _parse(text: str, size: int) -> AnyGroups:
    name, *numbers = text.strip().split(":")
    try:
        match name, numbers:
            case (("smart" | "punctual" | "random"), []):
                return GENERATORS[name](max(2, min(USUAL_SIZE, size)))
            case (("smart" | "punctual" | "random"), [members]):
                return GENERATORS[name](int(members))
            case "static", [ranks_per_node]:
                return StaticGroups(int(ranks_per_node))
    except ValueError as error:
        raise ValueError(f"groups {text!r}: {error}") from error
    raise ValueError(
        f"groups {text!r}: expected smart, punctual or random, with :MEMBERS or without, or static:RANKS_PER_NODE"
    )
