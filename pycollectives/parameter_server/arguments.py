"""The arguments of a parameter server, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..support import buffers
from ..support.validation import checked_choice, checked_name, checked_rank
from .sync import EAMSGD, Synchronization, parse
from .update import UpdateRule

__all__ = ["ServerSpecification"]

FLOATS = ("float16", "bfloat16", "float32", "float64")
NAN = ("reject", "skip", "accept")


@dataclass(frozen=True)
class ServerSpecification:
    """The arguments of `Communicator.parameter_server` after all checks that need no other rank.

    `direct`: whoever pushes updates the weights; `servers` are then the ranks whose first weights count.
    """

    buffer: buffers.BufferDescription
    sync: Synchronization
    update: UpdateRule | Callable[..., Any] | None
    servers: tuple[int, ...]
    workers: tuple[int, ...]
    direct: bool
    nan: str
    name: str

    @classmethod
    def checked(
        cls,
        like: Any,
        *,
        sync: Any,
        update: Any,
        servers: Any,
        workers: Any,
        nan: Any,
        name: Any,
        nodes: Sequence[int],
    ) -> ServerSpecification:
        """Check the arguments for ranks on `nodes`.

        Raises
        ------
        ValueError, TypeError, BufferError
            State the argument, what was expected and what was got.
        """
        size = len(nodes)
        buffer = buffers.describe(like)
        if buffer.dtype.name not in FLOATS:
            raise TypeError(f"like: expected elements of {', '.join(FLOATS)}, got {buffer.dtype}")
        if buffer.count < 1:
            raise ValueError("like: expected at least one element, got none")
        checked = checked_sync(sync)
        direct = isinstance(servers, str) and servers == "node" and len(set(nodes)) == 1
        serving = checked_servers(servers, nodes)
        if len(serving) > buffer.count:
            raise ValueError(
                f"servers: expected at most {buffer.count}, one for each element of the weights, got {len(serving)}"
            )
        return cls(
            buffer,
            checked,
            checked_update(update, checked),
            serving,
            checked_workers(workers, serving, size, all_by_default=isinstance(servers, str)),
            direct,
            checked_choice("nan", nan, NAN),
            checked_name(name),
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": self.buffer.dtype.name,
            "sync": repr(self.sync),
            "update": "a function" if callable(self.update) else repr(self.update),
            "servers": "node" if self.direct else str(self.servers),
            "workers": str(self.workers),
            "nan": self.nan,
            "name": self.name,
        }

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments as the engine takes them, without a function."""
        if isinstance(self.sync, EAMSGD):
            update = {"rule": "elastic", "alpha": self.sync.alpha}
        elif isinstance(self.update, UpdateRule):
            update = self.update.engine_arguments()
        else:
            update = {"rule": "function"}
        return {
            "count": self.buffer.count,
            "dtype_name": self.buffer.dtype.name,
            "workers": self.workers,
            "servers": self.servers,
            "direct": self.direct,
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


def checked_update(update: Any, sync: Synchronization) -> UpdateRule | Callable[..., Any] | None:
    """Return how gradients change the weights; `ValueError` or `TypeError`."""
    if isinstance(sync, EAMSGD):
        if update is not None:
            raise ValueError(
                f"update: expected None under {sync!r}, where workers push weights and update them themselves, "
                f"got {update!r}"
            )
        return None
    if isinstance(update, UpdateRule) and type(update) is not UpdateRule:
        return update
    if not callable(update) or isinstance(update, type):
        raise TypeError(f"update: expected one such as SGD(0.1) or Adam(1e-3), or a function, got {update!r}")
    function: Callable[..., Any] = update
    return function


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


def checked_workers(workers: Any, servers: tuple[int, ...], size: int, *, all_by_default: bool) -> tuple[int, ...]:
    """Return the ranks that push, ascending; `ValueError` or `TypeError`."""
    if workers is not None:
        if not isinstance(workers, Iterable) or isinstance(workers, str):
            raise TypeError(f"workers: expected None or a list of ranks, got {workers!r}")
        return distinct("workers", workers, size)
    if all_by_default or len(servers) == size:
        return tuple(range(size))
    return tuple(rank for rank in range(size) if rank not in servers)


def distinct(what: str, ranks: Iterable[Any], size: int) -> tuple[int, ...]:
    """Return ranks, ascending: at least one, and none twice."""
    checked = sorted(checked_rank(what, rank, size) for rank in ranks)
    if not checked:
        raise ValueError(f"{what}: expected at least one rank, got none")
    if len(set(checked)) != len(checked):
        raise ValueError(f"{what}: expected different ranks, got {checked}")
    return tuple(checked)
