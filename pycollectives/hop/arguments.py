"""The arguments of Hop and of its queues: checks on one rank, and a form that ranks can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from ..arguments import (
    Arguments,
    Template,
    as_given,
    compared_as,
    creation,
    initial_model_on_host,
    one_of,
    template_on_host,
)
from ..support.validation import checked_integer, checked_rank
from ..topology.arguments import checked_static_topology, described
from ..topology.conversion import from_matrix
from ..topology.survivors import without
from .modes import MOST, Mode, NotifyAck, Skip, Standard, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..topology.graph import Topology

LONGEST_GAP = 1 << 16
"""Limit of `max_ig`, far above the number of sub-queues that fit into memory."""


def _topology(topology: Topology | str) -> Topology:
    graph = checked_static_topology(topology, creation().numbered)
    graph.check_connected()
    if graph.default_weights == "given":
        raise ValueError(
            f"topology: expected a graph without weights, since averages are plain means (Hop, Fig. 4), got "
            f"{graph!r}; give its edges: pc.topology.Topology(size, edges)"
        )
    return graph


def _max_ig(iterations: int) -> int:
    return checked_integer("max_ig", iterations, at_least=1, at_most=LONGEST_GAP)


def _mode(mode: Mode | str) -> Any:
    if not isinstance(mode, str) and (not isinstance(mode, Mode) or type(mode) is Mode):
        raise TypeError(f"mode: expected a mode such as Standard(), BackupWorkers(1) or 'backup:1', got {mode!r}")
    return mode


def _skip(skip: Skip | None) -> Skip | None:
    if skip is not None and not isinstance(skip, Skip):
        raise TypeError(f"skip: expected None or Skip(max_jump, trigger), got {skip!r}")
    return skip


@attrs.frozen
class HopArguments(Arguments):
    """Make a `Hop`: decentralized training in which ranks may be several iterations apart; collective.

    Parameters
    ----------
    initial
        This rank's initial parameters, which are copied: a buffer, or `[buffer, count, type]`, of float16, bfloat16,
        float32 or float64.
    topology
        The graph along which ranks send updates: a connected graph of `pycollectives.topology`, or its name. Averages
        are plain means; they keep the mean over ranks if all ranks have the same number of neighbors (section 3.1).
    max_ig
        The largest number of iterations, at least 1, by which a rank can be ahead of an out-neighbor, enforced by token
        queues (section 4.2). A rank allocates memory for max_ig + 1 updates from each in-neighbor and, if it has
        out-neighbors on other nodes, for max_ig + 1 copies of its own update.
    mode
        The updates for which a rank waits: `Standard()` (default), `NotifyAck()`, `BackupWorkers(n)`,
        `BoundedStaleness(s)` or `Hybrid(n, s)` of `pycollectives.hop`; or a string for `pycollectives.hop.parse`, such
        as "backup:1" or "skip:10".
    skip
        `Skip(max_jump, trigger)`: a rank that is far behind skips iterations (section 5). Default: None. Not allowed
        with `Standard()` and `NotifyAck()`, where no rank is far behind.
    computation
        "parallel": ranks send their updates before they compute gradients, so that messages travel during the
        computation. "serial": they send updates afterwards, with the gradients applied (section 3.2).
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for creating it, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "hop"

    initial: Template = attrs.field(converter=initial_model_on_host)
    topology: Topology = attrs.field(
        default=as_given("ring-based"), kw_only=True, converter=_topology, metadata=compared_as(described)
    )
    max_ig: int = attrs.field(default=5, kw_only=True, converter=_max_ig)
    mode: Mode = attrs.field(default=as_given("standard"), kw_only=True, converter=_mode)
    skip: Skip | None = attrs.field(default=None, kw_only=True, converter=_skip)
    computation: Literal["parallel", "serial"] = attrs.field(
        default="parallel", kw_only=True, validator=one_of("parallel", "serial")
    )

    def __attrs_post_init__(self) -> None:
        """Resolve a string into `mode` and `skip`, and check both against the graph and each other."""
        if isinstance(self.mode, str):
            mode, skip = _parsed(self.mode, self.skip)
            object.__setattr__(self, "mode", mode)
            object.__setattr__(self, "skip", skip)
        graph, mode = self.topology, self.mode
        mode.check_size(graph.size)
        incoming = [len(graph.in_neighbors(rank)) for rank in range(graph.size)]
        rank = min(range(graph.size), key=lambda each: incoming[each] - mode.backup_of(each))
        if mode.backup_of(rank) > incoming[rank] and graph.size > 1:
            raise ValueError(
                f"{mode!r}: expected n <= {incoming[rank]}, the number of in-neighbors of rank {rank} in {graph!r}"
            )
        if self.skip is not None and isinstance(mode, Standard | NotifyAck):
            raise ValueError(
                f"skip: expected None under {mode!r}, in which no rank is more than one iteration behind its "
                f"out-neighbors, got {self.skip!r}; use BackupWorkers(n) or BoundedStaleness(s)"
            )

    def for_engine(self, members: Sequence[int] = ()) -> dict[str, Any]:
        """Return the arguments as the engine takes them.

        After deaths, `members` are the survivors, and the engine numbers them from 0.
        """
        graph, mode = self.topology, self.mode.engine_arguments(self.topology.size)
        if 0 < len(members) < graph.size:
            graph = from_matrix(without(graph.matrix(), members))
            of_members = [mode["backup"][member] for member in members]
            mode["backup"] = [min(n, len(graph.in_neighbors(place))) for place, n in enumerate(of_members)]
        ranks = range(graph.size)
        return {
            **mode,
            "count": self.initial.buffer.count,
            "dtype_name": self.initial.buffer.dtype.name,
            "max_ig": self.max_ig,
            "skip": None if self.skip is None else (self.skip.max_jump, self.skip.trigger),
            "serial": self.computation == "serial",
            "in_neighbors": [graph.in_neighbors(rank) for rank in ranks],
            "out_neighbors": [graph.out_neighbors(rank) for rank in ranks],
            "name": self.name,
        }


def _parsed(text: str, skip: Skip | None) -> tuple[Mode, Skip | None]:
    """Return the mode and `skip` that a string describes; `ValueError` if `skip` is given twice."""
    try:
        mode, named_skip = parse(text)
    except ValueError as error:
        raise ValueError(f"mode: {error}") from None
    if named_skip is not None and skip is not None:
        raise ValueError(f"skip: expected None, since mode={text!r} defines when iterations are skipped, got {skip!r}")
    return mode, skip if named_skip is None else named_skip


# --- Queues


def _owner(owner: int) -> int:
    return checked_rank("owner", owner, creation().numbered)


def _taker(taker: int) -> int:
    return checked_rank("taker", taker, creation().numbered)


def _senders(senders: Iterable[int] | None) -> tuple[int, ...] | None:
    if senders is None:
        return None
    checked = tuple(sorted(checked_rank("senders", rank, creation().numbered) for rank in senders))
    if len(set(checked)) != len(checked):
        raise ValueError(f"senders: expected different ranks, got {list(checked)}")
    return checked


def _tokens(tokens: int) -> int:
    return checked_integer("tokens", tokens, at_least=0, at_most=MOST)


@attrs.frozen
class UpdateQueueArguments(Arguments):
    """Make an `UpdateQueue` owned by one rank, for your own schemes; collective.

    Parameters
    ----------
    like
        A buffer, or `[buffer, count, type]`, with the count and dtype of an update.
    owner
        The rank that dequeues.
    senders
        The ranks that enqueue; by default all other ranks.
    max_ig
        At least 1: the queue has max_ig + 1 slots for each sender.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for creating it, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "update_queue"

    like: Template = attrs.field(converter=template_on_host)
    owner: int = attrs.field(kw_only=True, converter=_owner)
    senders: tuple[int, ...] = attrs.field(default=None, kw_only=True, converter=_senders, metadata=compared_as(str))
    max_ig: int = attrs.field(default=5, kw_only=True, converter=_max_ig)

    def __attrs_post_init__(self) -> None:
        if self.senders is None:
            others = tuple(rank for rank in range(creation().numbered) if rank != self.owner)
            object.__setattr__(self, "senders", others)
        if self.owner in self.senders:
            raise ValueError(f"senders: expected ranks other than the owner, {self.owner}, got {list(self.senders)}")


@attrs.frozen
class TokenQueueArguments(Arguments):
    """Make a `TokenQueue` between two ranks, for your own schemes; collective.

    Parameters
    ----------
    owner
        The rank that puts tokens in.
    taker
        The rank that takes them out.
    tokens
        The initial number of tokens, at least 0. Hop uses max_ig.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for creating it, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "token_queue"

    owner: int = attrs.field(kw_only=True, converter=_owner)
    taker: int = attrs.field(kw_only=True, converter=_taker)
    tokens: int = attrs.field(default=5, kw_only=True, converter=_tokens)

    def __attrs_post_init__(self) -> None:
        if self.owner == self.taker:
            raise ValueError(f"taker: expected a rank other than the owner, {self.owner}")
