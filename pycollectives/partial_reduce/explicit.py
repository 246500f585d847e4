"""P-Reduces among ranks that the application names (Ripples, section 3)."""

from __future__ import annotations

import contextlib
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..agreement.consistency import MAX_REFUSAL
from ..selection import tables
from ..support.buffers import array_of, as_bytes_exporter, checked_dtype
from ..support.device_arrays import check_available, describe_device
from ..support.errors import ClosedError, RankFailedError, TransportError
from ..support.operations import check_op_on_device, checked_op_on
from .arguments import SHORTEST_ON_BOARD, explicit_group_algorithm, group_algorithm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .. import _core
    from ..context import Context
    from ..selection.choice import SelectionTable
    from ..selection.model import CostModel
    from ..support.device_arrays import DeviceArray
    from ..support.typing import BufferSpec, Op


class ExplicitGroups:
    """One rank's P-Reduces. The engine's object for them is made at first use."""

    def __init__(self, context: Context) -> None:
        self._context: Context = weakref.proxy(context)  # which owns this
        self._made: _core.ExplicitGroups | None = None
        self._making = threading.Lock()
        self._has_reduced_on_device = False

    def reduce(
        self,
        x: BufferSpec,
        members: Sequence[int],
        op: Op,
        timeout: float | None,
        stream: Any = None,
        *,
        caller: str,
    ) -> None:
        """Reduce in place among the members of a checked group: see `Communicator.preduce`."""
        perform = self.prepared(x, members, op, timeout, stream, caller=caller)
        if perform is not None:
            perform(timeout=self._context.limit(timeout))

    def prepared(
        self,
        x: BufferSpec,
        members: Sequence[int],
        op: Op,
        timeout: float | None,
        stream: Any = None,
        *,
        caller: str,
        on_host: bool = False,
    ) -> Callable[..., None] | None:
        """Return the call with its checked arguments, except `timeout`; None if this rank is the only member.

        If an argument is invalid, the other members receive the error. `caller` is the name of the call on all members.
        With `on_host`, arrays on devices are invalid.
        """
        try:
            if len(members) == self._context.size:
                self._context.check_flushed(caller)
            self._context.limit(timeout)
            if on_host and describe_device(x, stream=stream) is not None:
                raise ValueError("preduce: expected host memory with on_failure='continue', got an array on a device")
            perform = self._prepared(x, members, op, stream)
        except Exception as error:
            self._refuse(members, f"{type(error).__name__}: {error}")
            raise
        return None if perform is None else partial(perform, caller=caller)

    def c_handle(self, count: int, dtype: str, op: str) -> object:
        """Return the handle, a capsule, for P-Reduces from C on arrays of `count` elements."""
        context = self._context
        element = checked_dtype(np.dtype(dtype))
        name = checked_op_on(op, element)
        nbytes = count * element.itemsize
        sizes = (max(members, 2) for members in range(context.size + 1))
        return self.in_use().c_handle(
            nodes=context.nodes,
            count=count,
            dtype_name=element.name,
            op=name,
            algorithms=[group_algorithm(self._table(), members, nbytes) for members in sizes],
            on_board=nbytes >= SHORTEST_ON_BOARD,
            timeout=context.timeout,
        )

    def _refuse(self, members: Sequence[int], reason: str) -> None:
        if len(members) > 1:
            with contextlib.suppress(ClosedError, TransportError, RankFailedError):  # the caller's mistake matters more
                text = reason.encode("utf-8", "backslashreplace").decode()
                self.in_use().refuse(members, text[:MAX_REFUSAL])

    def _prepared(self, x: BufferSpec, members: Sequence[int], op: Op, stream: Any) -> Callable[..., None] | None:
        """Return the engine's call with its checked arguments; None if this rank is the only member."""
        is_of_host = isinstance(x, (np.ndarray, list, tuple))  # a fast check for most calls
        on_device = None if is_of_host else describe_device(x, stream=stream)
        if on_device is not None:
            return self._prepared_on_device(on_device, members, op)
        if stream is not None:
            raise ValueError(f"preduce: stream: expected None, as x is on the host, got {stream!r}")
        array = array_of(x)
        dtype = checked_dtype(array.dtype)
        name = checked_op_on(op, dtype)
        if not array.flags.writeable:
            raise BufferError("preduce: expected a writable buffer, got a read-only one")
        if len(members) == 1:
            return None
        return partial(
            self.in_use().reduce,
            as_bytes_exporter(array),
            dtype_name=dtype.name,
            members=members,
            op=name,
            algorithm=explicit_group_algorithm(self._table(), members, self._context.nodes, array.nbytes),
        )

    def _prepared_on_device(self, array: DeviceArray, members: Sequence[int], op: Op) -> Callable[..., None] | None:
        if not self._has_reduced_on_device:
            check_available()
        name = checked_op_on(op, array.dtype)
        check_op_on_device(name, array.dtype)
        if array.readonly:
            raise BufferError("preduce: expected a writable array, got one that is read-only")
        if len(members) == 1:
            return None
        nbytes = array.count * array.dtype.itemsize
        self._has_reduced_on_device = True
        return partial(
            self.in_use().reduce_on_device,
            array.device,
            array.pointer,
            count=array.count,
            owner=array.owner,
            streams=array.streams,
            dtype_name=array.dtype.name,
            members=members,
            op=name,
            algorithm=group_algorithm(self._table(), len(members), nbytes),
        )

    def _table(self) -> SelectionTable | CostModel:
        return tables.for_costs(self._context.costs)

    @property
    def cache(self) -> tuple[int, int]:
        """Hits and misses of the engine's cache of plans: see `CommunicatorStatistics`."""
        return (0, 0) if self._made is None else (self._made.cache_hits, self._made.cache_misses)

    def close(self) -> None:
        if self._made is not None:
            self._made.leave()

    def in_use(self) -> _core.ExplicitGroups:
        """Return the engine's object. Once made, it receives other ranks' messages."""
        from ..support.native import core

        with self._making:
            if self._made is None:
                self._made = core.ExplicitGroups(self._context.engine, nodes=self._context.nodes)
            return self._made
