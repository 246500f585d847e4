"""The arguments of a parameter server: checks on one rank, and a form that ranks can compare."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import attrs

from ..arguments import Arguments, Template, as_given, compared_as, creation, initial_model_on_host, one_of
from ..support.validation import checked_choice, checked_rank
from .sync import EAMSGD, Synchronization, parse
from .update import UpdateRule

PER_WORKER = ("trials", "allotted")
"""Options of a synchronization that may be a list with a value for each worker."""

Servers = int | Iterable[int] | Literal["node"]


class Placement(NamedTuple):
    """The location of the weights."""

    ranks: tuple[int, ...]  # the ranks with shards, ascending; if `direct`, the ranks whose initial weights count
    direct: bool  # the pushing worker updates the weights in the node's memory
    by_node: bool  # the argument was "node"

    def __str__(self) -> str:
        """Return the text that ranks compare."""
        return "node" if self.direct else str(self.ranks)


def _sync(sync: Synchronization | str) -> Synchronization:
    return checked_sync(sync)


def _servers(servers: Servers) -> Placement:
    nodes = creation().group.nodes
    by_node = isinstance(servers, str)
    ranks = checked_servers(servers, nodes, creation().numbered)
    return Placement(ranks, by_node and len(set(nodes)) == 1, by_node)


def _workers(workers: Iterable[int] | None) -> tuple[int, ...] | None:
    if workers is None:
        return None
    if not isinstance(workers, Iterable) or isinstance(workers, str):
        raise TypeError(f"workers: expected None or a list of ranks, got {workers!r}")
    return distinct("workers", workers, creation().numbered)


def _described(update: object) -> str:
    return "a function" if callable(update) else repr(update)


@attrs.frozen
class ParameterServerArguments(Arguments):
    """Make a `ParameterServer`: shared weights to which workers push gradients; collective.

    Parameters
    ----------
    initial
        The initial weights: a buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64, which is
        copied. The servers' values are used; with servers="node" on one node, rank 0's.
    sync
        When gradients are used and when workers continue: `BSP()` (default), `ASP()`, `SSP(s)`, `DSSP(lo, hi)`,
        `ElasticBSP(lookahead)`, `EAMSGD(period, alpha)` or another class of `pycollectives.servers`; or a string for
        `pycollectives.servers.parse`, such as "ssp:3".
    update
        The rule that applies gradients: `SGD(rate, momentum)`, `Adam(rate)`, or a function `update(weights, gradient)`
        that changes `weights` in place. Each server calls its rank's function, in a thread, with its part of both
        arrays. The parts have the shape of `initial` if there is one server, and are one-dimensional otherwise. With
        servers="node" on one node, the pushing worker calls it, one worker at a time. Required; must be None
        under `EAMSGD`.
    servers
        The ranks that have the weights: a number n for the n lowest ranks, or a list of ranks. Each serves its part in
        the background, independently of the application. "node": the weights are in the node's shared memory, and the
        pushing worker updates them, so that no rank serves; on several nodes the lowest rank of each serves a part.
    workers
        The ranks that push. Default: all ranks if servers="node" or every rank serves, otherwise the ranks that do not
        serve.
    nan
        The handling of a push with values that are not finite: "reject" raises `ValueError`, "skip" counts the push
        without applying it, "accept" does not check.
    name
        Name in messages and traces. Default: a number in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "parameter_server"

    initial: Template = attrs.field(converter=initial_model_on_host)
    sync: Synchronization = attrs.field(default=as_given("bsp"), kw_only=True, converter=_sync)
    update: UpdateRule | Callable[..., Any] | None = attrs.field(
        default=None, kw_only=True, metadata=compared_as(_described)
    )
    servers: Placement = attrs.field(default=as_given(1), kw_only=True, converter=_servers, metadata=compared_as(str))
    workers: tuple[int, ...] = attrs.field(default=None, kw_only=True, converter=_workers, metadata=compared_as(str))
    nan: Literal["reject", "skip", "accept"] = attrs.field(
        default="reject", kw_only=True, validator=one_of("reject", "skip", "accept")
    )

    def __attrs_post_init__(self) -> None:
        """Check arguments that depend on each other, and find the workers."""
        count, serving = self.initial.buffer.count, self.servers.ranks
        if count < 1:
            raise ValueError("initial: expected at least one element, got none")
        if len(serving) > count:
            raise ValueError(
                f"servers: expected at most {count}, one for each element of the weights, got {len(serving)}"
            )
        check_update(self.update, self.sync)
        if self.workers is None:
            object.__setattr__(self, "workers", self._usual_workers())

    def _usual_workers(self) -> tuple[int, ...]:
        ranks, serving = range(creation().numbered), self.servers.ranks
        if self.servers.by_node or len(serving) == len(ranks):
            return tuple(ranks)
        return tuple(rank for rank in ranks if rank not in serving)

    def for_engine(self, workers: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the engine's arguments, except a function `update`. `workers` are the live workers."""
        sync = self.sync.engine_arguments()
        for name in PER_WORKER:
            if workers is not None and len(sync.get(name, ())) == len(self.workers) > 1:
                of_worker = dict(zip(self.workers, sync[name], strict=True))
                sync[name] = [of_worker.get(rank, sync[name][0]) for rank in workers]
        if isinstance(self.sync, EAMSGD):
            update = {"rule": "elastic", "alpha": self.sync.alpha}
        elif isinstance(self.update, UpdateRule):
            update = self.update.engine_arguments()
        else:
            update = {"rule": "function"}
        return {
            "count": self.initial.buffer.count,
            "dtype_name": self.initial.buffer.dtype.name,
            "workers": self.workers,
            "servers": self.servers.ranks,
            "direct": self.servers.direct,
            "sync": sync,
            "update": update,
            "nan": self.nan,
            "name": self.name,
        }


def checked_sync(sync: Any) -> Synchronization:
    """Return `sync` as an object; raise `ValueError` or `TypeError` if it is invalid."""
    if isinstance(sync, str):
        try:
            return parse(sync)
        except ValueError as error:
            raise ValueError(f"sync: {error}") from None
    if not isinstance(sync, Synchronization) or type(sync) is Synchronization:
        raise TypeError(f"sync: expected a synchronization such as BSP(), SSP(3) or 'ssp:3', got {sync!r}")
    return sync


def check_update(update: Any, sync: Synchronization) -> None:
    """Raise `ValueError` or `TypeError` if `update` is not valid under `sync`."""
    if isinstance(sync, EAMSGD):
        if update is not None:
            raise ValueError(
                f"update: expected None under {sync!r}, where workers push weights and update them themselves, "
                f"got {update!r}"
            )
        return
    if isinstance(update, UpdateRule) and type(update) is not UpdateRule:
        return
    if not callable(update) or isinstance(update, type):
        raise TypeError(f"update: expected a rule such as SGD(0.1) or Adam(1e-3), or a function, got {update!r}")


def checked_servers(servers: Any, nodes: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the ranks that have parts of the weights, ascending; raise if `servers` is invalid."""
    if isinstance(servers, str):
        checked_choice("servers", servers, ("node",))
        return tuple(sorted({list(nodes).index(node) for node in nodes}))
    if isinstance(servers, Iterable):
        return distinct("servers", servers, size)
    try:
        number = operator.index(servers)
    except TypeError:
        raise TypeError(f"servers: expected a number, a list of ranks or 'node', got {servers!r}") from None
    if not 1 <= number <= size:
        raise ValueError(f"servers: expected 1 to {size}, the number of ranks, got {number}")
    return tuple(range(number))


def distinct(what: str, ranks: Iterable[Any], size: int) -> tuple[int, ...]:
    """Return `ranks`, ascending; raise if there are none, or if one is invalid or listed twice."""
    checked = sorted(checked_rank(what, rank, size) for rank in ranks)
    if not checked:
        raise ValueError(f"{what}: expected at least one rank, got none")
    if len(set(checked)) != len(checked):
        raise ValueError(f"{what}: expected different ranks, got {checked}")
    return tuple(checked)
