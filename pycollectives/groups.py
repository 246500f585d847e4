"""Group generators: which workers average together (Ripples, sections 4 and 5).

A generator is an immutable value, the same on all ranks. Limits that depend on the number of ranks are checked when a
collective is made with it.

| generator | a group is |
|---|---|
| `RandomGroups(size, seed)` | drawn from all workers (Ripples 4.1) |
| `SmartGroups(size, seed)` | one part of a division of all workers that are in no group (Ripples 5) |
| `PunctualGroups(size, seed)` | made of workers that are due at the same time (ours) |
| `StaticGroups(ranks_per_node)` | computed by a rule from rank and step (Ripples 4.2) |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .support.validation import Declared, checked_number, hash_seed, integer

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
"""Members of a group if the generator's string has no number."""


def node_of_each(size: int, ranks_per_node: int) -> list[int]:
    """Return the node of each of `size` workers; the last node may have fewer.

    >>> node_of_each(5, 2)
    [0, 0, 1, 1, 2]
    """
    return [rank // ranks_per_node for rank in range(size)]


@dataclass(frozen=True)
class GeneratedGroups(Declared):
    """Base class of the generators that one state machine runs for all workers."""

    size: int = field(default=3, metadata=integer(at_least=2))
    seed: int = field(default=0, metadata=hash_seed(at_least=0))

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this generator to the engine."""
        return {name: 0 if value is None else value for name, value in asdict(self).items()}

    def check(self, size: int) -> None:
        """Raise `ValueError` if `size` workers are too few for a group."""
        if self.size > size > 1:
            raise ValueError(f"{self!r}: expected a size of 2 to {size}, the number of workers, got {self.size}")

    def machine(self, node_of: Sequence[int]) -> GroupGenerator:
        """Return a new state machine for workers on the given nodes; it moves no data."""
        from .support.native import core

        return core.GroupGenerator(node_of, **self.engine_arguments())


@dataclass(frozen=True)
class RandomGroups(GeneratedGroups):
    """Form a group from its initiator and others drawn from all workers (Ripples 4.1).

    These groups mix best, but they conflict: a worker may be in several groups, which then wait for each other.

    Parameters
    ----------
    size
        Members of a group, >= 2.
    seed
        0 <= seed < 2**64, the same on all ranks.
    group_buffer
        True: a request returns a pending group of the worker, if there is one, so that each synchronization is one
        P-Reduce (5.1). False: each request makes a new group, and the worker's pending groups are performed before it
        (4.1).
    connectivity
        Number of each worker's newest groups to check. If they do not connect all of their workers, the next group
        is chosen to connect them (P-Reduce, SIGMOD 2021). None: no check.

    >>> RandomGroups(size=4)
    RandomGroups(size=4, seed=0, group_buffer=True, connectivity=None)
    """

    kind: ClassVar[str] = "random"
    group_buffer: bool = True
    connectivity: int | None = field(default=None, metadata=integer(at_least=1, optional=True))


@dataclass(frozen=True)
class SmartGroups(GeneratedGroups):
    """At a request, divide all workers that are in no group into groups, without conflicts (Ripples 5).

    Parameters
    ----------
    size
        Members of a group, >= 2. If one worker is left over, one group gets one more member.
    seed
        0 <= seed < 2**64, the same on all ranks.
    inter_intra
        True: a division makes two groups for each worker. In the first, one worker per node averages with workers of
        other nodes, and the others within their node; the second is the whole node (5.2). This needs fewer messages
        between nodes, but a slow worker delays the others of its node (see `PunctualGroups`).
    slowdown_threshold
        A division leaves out workers that have made this many fewer requests than its initiator (5.3). None: no worker
        is left out. A smaller number leaves out a straggler sooner, but also workers that are behind by chance.
    group_buffer, global_division
        The mechanisms of section 5.1, which you can switch off for comparison. `inter_intra` needs `global_division`,
        which needs `group_buffer`.
    connectivity
        As for `RandomGroups`.

    >>> SmartGroups(size=4, inter_intra=False).slowdown_threshold
    8
    """

    kind: ClassVar[str] = "smart"
    inter_intra: bool = True
    slowdown_threshold: int | None = field(default=8, metadata=integer(at_least=1, optional=True))
    group_buffer: bool = field(default=True, kw_only=True)
    global_division: bool = field(default=True, kw_only=True)
    connectivity: int | None = field(default=None, kw_only=True, metadata=integer(at_least=1, optional=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inter_intra and not self.global_division:
            raise ValueError("SmartGroups: inter_intra=True needs global_division=True")
        if self.global_division and not self.group_buffer:
            raise ValueError("SmartGroups: global_division=True needs group_buffer=True")


@dataclass(frozen=True)
class PunctualGroups(GeneratedGroups):
    """Form a group from its initiator and workers due at the same time, so that no worker waits for a straggler.

    This rule is ours, in place of sections 5.1 to 5.3 of Ripples; docs/groups.md gives the reasons. A worker is due
    one interval after its last group; the interval is a running mean of its compute time.

    Parameters
    ----------
    size
        Members of a group, >= 2; one more if only one more worker is due.
    seed
        0 <= seed < 2**64, the same on all ranks.
    tolerance
        The other members are drawn from the workers that are due within this fraction of the initiator's interval.
    patience
        If no other worker is due, the initiator waits for the first worker due within this fraction of its interval. If
        there is none, the initiator is the only member of its group.
    connectivity
        As for `RandomGroups`. It mixes workers that are due at different times and would otherwise never meet.

    >>> PunctualGroups(size=4)
    PunctualGroups(size=4, seed=0, tolerance=0.1, patience=1.0, connectivity=8)
    """

    kind: ClassVar[str] = "punctual"
    tolerance: float = field(default=0.1, metadata={"check": checked_number})
    patience: float = field(default=1.0, metadata={"check": checked_number})
    connectivity: int | None = field(default=8, metadata=integer(at_least=1, optional=True))

    def engine_arguments(self) -> dict[str, Any]:
        return {**super().engine_arguments(), "punctual": True}


@dataclass(frozen=True)
class StaticGroups(Declared):
    """Compute the groups of each step by a rule, without a generator and without conflicts (Ripples 4.2).

    The rule generalizes Fig. 10. It repeats every four steps; a node has n workers, numbered from 0:

    ====  ======================  =============================  ===========================  ===================
    step  worker 0                worker 1                       the others                   worker n - 1
    ====  ======================  =============================  ===========================  ===================
    0     workers 0 of all nodes  none                           in pairs: 2 and 3, 4 and 5   (is one of them)
    1     all of the node         all                            all                          all
    2     worker n - 1            worker 1 of the opposite node  in pairs: 2 and 3            worker 0
    3     all of the node         all                            all                          all
    ====  ======================  =============================  ===========================  ===================

    - If the number of workers in pairs is odd, the last one joins the last pair. If there is no pair, this worker
      does not synchronize.
    - In a node of one or two workers, the last worker averages with the opposite node in step 2.
    - The opposite node is halfway around the ring of nodes. If the number of nodes is odd, one node, a different one
      every four steps, has no opposite and joins a pair of nodes.

    A straggler eventually delays all workers. A worker with "none" in the table does not synchronize in that step.

    Parameters
    ----------
    ranks_per_node
        Number of ranks per node, >= 1. Ranks 0 to `ranks_per_node` - 1 form the first node, and so on. The last node
        may have fewer.

    >>> StaticGroups(4).group_of(rank=0, step=0, size=16)
    (0, 4, 8, 12)
    >>> StaticGroups(4).group_of(rank=1, step=2, size=16)
    (1, 9)
    >>> StaticGroups(4).group_of(rank=1, step=0, size=16)
    (1,)
    """

    kind: ClassVar[str] = "static"
    ranks_per_node: int = field(metadata=integer(at_least=1))

    PHASES: ClassVar[int] = 4

    def check(self, size: int) -> None:
        """Do nothing: the rule works for every number of workers."""

    def group_of(self, rank: int, step: int, size: int) -> tuple[int, ...]:
        """Return the ranks of a worker's group in a step: only the worker itself if it does not synchronize.

        The function is pure: every member computes the same group.

        Parameters
        ----------
        rank
            The worker, 0 <= rank < size.
        step
            The number of the step, >= 0.
        size
            The number of workers.

        Returns
        -------
        tuple
            Ranks, ascending.

        Raises
        ------
        ValueError
            `rank` or `step` is out of range.
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
        """Return all groups of a `step`: a partition of `size` workers, in the order of their lowest ranks."""
        return sorted({self.group_of(rank, step, size) for rank in range(size)})

    def cycle(self, size: int) -> int:
        """Return the period in steps of the groups of `size` workers: 4, or 4 * nodes for an odd number of nodes."""
        nodes = self._nodes(size)
        return self.PHASES * (nodes if nodes % 2 else 1)

    def _nodes(self, size: int) -> int:
        return -(-size // self.ranks_per_node)

    def _workers(self, node: int, size: int) -> range:
        first = node * self.ranks_per_node
        return range(first, min(first + self.ranks_per_node, size))

    def _bridge(self, node: int, size: int) -> int:
        """Return the worker of a node that averages with the opposite node."""
        here = self._workers(node, size)
        return here[min(1, len(here) - 1)]


def _paired(rank: int, workers: Sequence[int]) -> tuple[int, ...]:
    """Return the group of `rank` if `workers` form pairs (the last pair can have three); others are alone."""
    if rank not in workers or len(workers) < 2:
        return (rank,)
    pair = min(workers.index(rank) // 2, len(workers) // 2 - 1)
    end = None if pair == len(workers) // 2 - 1 else 2 * pair + 2
    return tuple(workers[2 * pair : end])


def _opposite(node: int, nodes: int, cycle: int) -> list[int]:
    """Return `node` and the nodes opposite it, halfway around a ring that turns by one node each cycle."""
    half = nodes // 2
    place = (node + cycle) % nodes
    if half == 0:
        return [node]
    places = [place % half, place % half + half] if place < 2 * half else [half - 1, 2 * half - 1]
    if nodes % 2 and half - 1 in places:
        places.append(nodes - 1)
    return [(p - cycle) % nodes for p in places]


AnyGroups: TypeAlias = GeneratedGroups | StaticGroups
"""The source of groups: a generator or a rule."""

GENERATORS: dict[str, type[GeneratedGroups]] = {
    "smart": SmartGroups,
    "punctual": PunctualGroups,
    "random": RandomGroups,
}


def as_groups(groups: object, size: int) -> AnyGroups:
    """Return the generator or rule of groups, given as an object or a string, for `size` workers.

    The strings are "smart", "punctual" and "random", which can have a group size, as in "smart:4" (default: 3, or all
    workers if there are fewer), and "static:N" for N ranks on each node.

    Raises
    ------
    TypeError, ValueError
        `groups` is neither a generator, a rule nor such a string, or does not fit `size` workers.

    >>> as_groups("static:4", 8)
    StaticGroups(ranks_per_node=4)
    """
    if isinstance(groups, str):
        groups = _parse(groups, size)
    if not isinstance(groups, (GeneratedGroups, StaticGroups)) or type(groups) is GeneratedGroups:
        raise TypeError(
            f"groups: expected an object such as SmartGroups() or StaticGroups(4), or its string, got {groups!r}"
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
