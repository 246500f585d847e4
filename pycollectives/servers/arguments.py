"""The arguments of a parameter server, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import attrs

from ..arguments import Arguments, Template, as_given, compared_as, creation, initial_model_on_host
from ..support.validation import checked_choice, checked_rank
from .sync import EAMSGD, Synchronization, parse
from .update import UpdateRule

__all__ = ["ParameterServerArguments", "checked_sync"]

NAN = ("reject", "skip", "accept")

Servers = int | Iterable[int] | Literal["node"]


class Placement(NamedTuple):
    """Where the weights are.

    Attributes
    ----------
    ranks
        That have shards, ascending; if `direct`, those whose first weights count.
    direct
        Whoever pushes updates the weights, in the node's memory.
    by_node
        They were asked for as "node".
    """

    ranks: tuple[int, ...]
    direct: bool
    by_node: bool

    def __str__(self) -> str:
        """Return what ranks compare."""
        return "node" if self.direct else str(self.ranks)


def _sync(sync: Synchronization | str) -> Synchronization:
    return checked_sync(sync)


def _servers(servers: Servers) -> Placement:
    nodes = creation().group.nodes
    by_node = isinstance(servers, str)
    return Placement(checked_servers(servers, nodes), by_node and len(set(nodes)) == 1, by_node)


def _workers(workers: Iterable[int] | None) -> tuple[int, ...] | None:
    if workers is None:
        return None
    if not isinstance(workers, Iterable) or isinstance(workers, str):
        raise TypeError(f"workers: expected None or a list of ranks, got {workers!r}")
    return distinct("workers", workers, creation().group.size)


def _nan(nan: Literal["reject", "skip", "accept"]) -> str:
    return checked_choice("nan", nan, NAN)


def _described(update: object) -> str:
    return "a function" if callable(update) else repr(update)


@attrs.frozen
class ParameterServerArguments(Arguments):
    """Make a parameter server: weights that workers change by gradients, each when it has one; collective.

    Parameters
    ----------
    initial
        A buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64: the first weights. Those of
        the servers count, with servers="node" on one node those of rank 0. They are copied.
    sync
        When gradients are used, and who goes on: `BSP()`, the default, `ASP()`, `SSP(s)`, `DSSP(lo, hi)`,
        `ElasticBSP(lookahead)`, `EAMSGD(period, alpha)` and others of `pycollectives.servers`; or a text such as
        "ssp:3", as `pycollectives.servers.parse` takes it.
    update
        How gradients change the weights: `SGD(rate, momentum)` or `Adam(rate)`; or a function `update(weights,
        gradient)`, which changes `weights` in place. Each server calls that of its own rank, in a thread, with its
        part of both: of the shape of `initial` if it is the only server, else one-dimensional. With servers="node" on
        one node the rank that pushes calls it, one at a time. Required; None under `EAMSGD`.
    servers
        Who has the weights: a number of ranks, the lowest, or a list of ranks. Each serves its part in the
        background, whatever its application does. "node": the weights lie in the node's shared memory, and whoever
        pushes updates them, so that no rank serves; on several nodes the lowest rank of each serves a part.
    workers
        The ranks that push. By default all with servers="node" and where every rank serves, else those that do not
        serve.
    nan
        What a push does whose values are not all finite: "reject" raises `ValueError`, "skip" counts it without an
        effect, "accept" does not look.
    name
        In messages and traces; by default a number in the order of creation.
    timeout
        Seconds: the limit of its creation; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "parameter_server"

    initial: Template = attrs.field(converter=initial_model_on_host)
    sync: Synchronization = attrs.field(default=as_given("bsp"), kw_only=True, converter=_sync)
    update: UpdateRule | Callable[..., Any] | None = attrs.field(
        default=None, kw_only=True, metadata=compared_as(_described)
    )
    servers: Placement = attrs.field(default=as_given(1), kw_only=True, converter=_servers, metadata=compared_as(str))
    workers: tuple[int, ...] = attrs.field(default=None, kw_only=True, converter=_workers, metadata=compared_as(str))
    nan: str = attrs.field(default="reject", kw_only=True, converter=_nan)

    def __attrs_post_init__(self) -> None:
        """Check what depends on several arguments, and find the workers."""
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
        group = creation().group
        serving = self.servers.ranks
        if self.servers.by_node or len(serving) == group.size:
            return tuple(range(group.size))
        return tuple(rank for rank in range(group.size) if rank not in serving)

    def for_engine(self) -> dict[str, Any]:
        """Return the arguments as the engine takes them, without a function."""
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
            "sync": self.sync.engine_arguments(),
            "update": update,
            "nan": self.nan,
            "name": self.name,
        }


def checked_sync(sync: Any) -> Synchronization:
    """Return when who goes on; `ValueError` or `TypeError`."""
    if isinstance(sync, str):
        try:
            return parse(sync)
        except ValueError as error:
            raise ValueError(f"sync: {error}") from None
    if not isinstance(sync, Synchronization) or type(sync) is Synchronization:
        raise TypeError(f"sync: expected one such as BSP(), SSP(3) or 'ssp:3', got {sync!r}")
    return sync


def check_update(update: Any, sync: Synchronization) -> None:
    """Raise `ValueError` or `TypeError` if it does not say how gradients change the weights."""
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
        raise TypeError(f"update: expected one such as SGD(0.1) or Adam(1e-3), or a function, got {update!r}")


def checked_servers(servers: Any, nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks that have shards, ascending; `ValueError` or `TypeError`."""
    size = len(nodes)
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
        raise ValueError(f"servers: expected 1 to {size}, the ranks there are, got {number}")
    return tuple(range(number))


def distinct(what: str, ranks: Iterable[Any], size: int) -> tuple[int, ...]:
    """Return ranks, ascending: at least one, and none twice."""
    checked = sorted(checked_rank(what, rank, size) for rank in ranks)
    if not checked:
        raise ValueError(f"{what}: expected at least one rank, got none")
    if len(set(checked)) != len(checked):
        raise ValueError(f"{what}: expected different ranks, got {checked}")
    return tuple(checked)
