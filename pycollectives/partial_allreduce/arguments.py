"""What a partial allreduce is: its arguments, checked on one rank and put into a form that ranks can compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..selection import choice, tables
from ..support import buffers, operations
from ..support.device_arrays import DeviceArray, describe_device, device_number
from ..support.validation import checked_choice, checked_integer, checked_name, with_prefix
from .policies import as_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.costs import Costs
    from ..support.typing import Array
    from .policies import Policy

__all__ = ["PartialAllreduceSpecification"]

LATE = ("accumulate", "replace", "drop")
MISSED = ("latest", "sum")
MAX_NUMBER = 2**63 - 1
"""The engine counts, elements and bytes too, in 64 bits."""


@dataclass(frozen=True)
class PartialAllreduceSpecification:
    """The arguments of `Communicator.partial_allreduce` after all checks that need no other rank.

    Attributes
    ----------
    buffer
        Shape and element type of every contribution and result.
    exact_shape
        Whether contributions must have that shape, or only its count.
    device
        The number of the CUDA device that this rank's arrays are on; None: the host.
    stream
        On a device, that on which `like` is worked with, if it is known.
    choice
        What `algorithm` stands for: "auto" is resolved.
    selection_table
        The table that was asked, as ranks compare it; None: `algorithm` left nothing open.
    """

    buffer: buffers.BufferDescription
    exact_shape: bool
    device: int | None
    stream: int | None
    op: str
    policy: Policy
    late: str
    missed: str
    max_staleness: int | None
    choice: choice.Choice
    selection_table: str | None
    history: int
    name: str
    nodes: tuple[int, ...]

    @property
    def algorithm(self) -> str:
        """The algorithm's name, after "auto" has been resolved; of arrays on devices it says what is staged."""
        staged = self.device is not None and len(set(self.nodes)) > 1
        return self.choice.staged_name if staged else self.choice.name

    @classmethod
    def checked(
        cls,
        like: Any = None,
        *,
        count: Any = None,
        dtype: Any = None,
        op: Any,
        policy: Any,
        late: Any,
        missed: Any,
        max_staleness: Any,
        algorithm: Any,
        history: Any,
        name: Any,
        size: int,
        algorithms: Sequence[str],
        nodes: Sequence[int] | None = None,
        costs: Costs | None = None,
    ) -> PartialAllreduceSpecification:
        """Check the arguments for `size` ranks on `nodes` (None: one each) and an engine that has `algorithms`.

        `costs`: of messages, if every rank has a core and they are known.

        Raises
        ------
        ValueError, TypeError, BufferError
            State the argument, what was expected and what was got.
        """
        array = None if like is None else describe_device(like)
        stream = None if array is None else array.stream
        device = None if array is None else device_number(array)
        buffer, exact_shape = _buffer(like, array, count, dtype)
        op = operations.checked_op_on(op, buffer.dtype)
        policy = as_policy(policy).for_size(size)
        late = checked_choice("late", late, LATE)
        if missed is None:  # nothing is lost, and replicas stay equal
            missed = "sum" if op in ("SUM", "AVG") else "latest"
        missed = checked_choice("missed", missed, MISSED)
        if missed == "sum" and op not in ("SUM", "AVG"):
            raise ValueError(f"missed='sum' adds results up: expected op SUM or AVG, got {op}")
        if max_staleness is not None:
            max_staleness = checked_integer("max_staleness", max_staleness, at_least=0, at_most=MAX_NUMBER)
        history = checked_integer("history", history, at_least=1, at_most=MAX_NUMBER)
        if not isinstance(algorithm, str):
            raise TypeError(f"algorithm: expected a name, got {algorithm!r}")
        nodes = range(size) if nodes is None else nodes
        if device is not None:
            operations.check_op_on_device(op, buffer.dtype)
        few = choice.is_sparse(policy, late, max_staleness)
        choose = _choose if device is None else _choose_on_device
        nbytes = buffer.count * buffer.dtype.itemsize
        chosen, selection_table = choose(algorithm, algorithms, nodes, nbytes, few, costs)
        return cls(
            buffer,
            exact_shape,
            device,
            stream,
            op,
            policy,
            late,
            missed,
            max_staleness,
            chosen,
            selection_table,
            history,
            checked_name(name),
            tuple(nodes) if chosen.board else tuple(range(size)),
        )

    def signature(self) -> dict[str, str | int | None]:
        """Return what must be the same on all ranks; the shape need not be."""
        return {
            "count": self.buffer.count,
            "dtype": buffers.name_of(self.buffer.dtype),
            "memory": "host" if self.device is None else "CUDA device",
            "op": self.op,
            "policy": repr(self.policy),
            "late": self.late,
            "missed": self.missed,
            "max_staleness": self.max_staleness,
            "algorithm": self.algorithm,
            "activation": self.choice.activation,
            "segment_bytes": self.choice.segment_bytes,
            "selection_table": self.selection_table,
            "history": self.history,
            "name": self.name,
        }

    def readable(self, x: object) -> Array:
        """Return the memory of a contribution that is not simply an array of our shape and dtype; raise if wrong."""
        try:
            array = buffers.matching_array(x, self.buffer, exact_shape=self.exact_shape)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None
        return buffers.as_bytes_exporter(array)

    def writable(self, out: object) -> Array:
        """Return an array of our shape over memory that a result is to be written to; raise if it cannot be."""
        return buffers.writable_array(out, self.buffer).reshape(self.buffer.shape)

    def engine_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective."""
        return {
            "shape": self.buffer.shape,
            "dtype": self.buffer.dtype,
            "dtype_name": buffers.name_of(self.buffer.dtype),
            "op": self.op,
            **self.policy.engine_arguments(),
            "late": self.late,
            "missed": self.missed,
            "max_staleness": self.max_staleness,
            "nodes": self.nodes,
            "algorithm": self.choice.schedule or "recursive_doubling",  # nothing is sent on a single node
            "activation": self.choice.activation,
            "segment_bytes": self.choice.segment_bytes or choice.DEFAULT_SEGMENT_BYTES,
            "history": self.history,
            "name": self.name,
        }

    def device_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective on devices."""
        arguments = self.engine_arguments()
        for of_host in ("shape", "dtype", "segment_bytes", "activation"):
            del arguments[of_host]
        return {"device": self.device, "count": self.buffer.count, **arguments}


def _choose(
    algorithm: str, algorithms: Sequence[str], nodes: Sequence[int], nbytes: int, sparse: bool, costs: Costs | None
) -> tuple[choice.Choice, str | None]:
    """Return what `algorithm` stands for, and the table that was asked; None: it left nothing open."""
    size, count = len(nodes), len(set(nodes))
    asked = algorithm == "auto" or (count < size and algorithm.startswith(choice.BOARD)) or costs is not None
    table = tables.for_costs(costs) if asked else tables.built_in()
    chosen = choice.resolve(algorithm, algorithms, table, ranks=size, nodes=count, nbytes=nbytes, sparse=sparse)
    return chosen, tables.describe(table) if asked else None


def _choose_on_device(
    algorithm: str, algorithms: Sequence[str], nodes: Sequence[int], nbytes: int, sparse: bool, costs: Costs | None
) -> tuple[choice.Choice, str | None]:
    """Return the same of arrays on devices, where "auto" means a board wherever there can be one: nothing is staged."""
    count = len(set(nodes))
    if count == 1 and algorithm in ("auto", choice.BOARD):
        return choice.Choice(board=True, schedule=None), None
    if algorithm == "auto" and count < len(nodes):
        algorithm = choice.BOARD
    return _choose(algorithm, algorithms, nodes, nbytes, sparse, costs)


def _buffer(like: Any, array: DeviceArray | None, count: Any, dtype: Any) -> tuple[buffers.BufferDescription, bool]:
    """Return what contributions hold, and whether their shape matters; `array`: what `like` is, if on a device."""
    if like is not None:
        if count is not None or dtype is not None:
            raise TypeError("expected either like, or count and dtype; got both")
        if array is not None:
            return buffers.BufferDescription(array.shape, array.dtype), True
        return buffers.describe(like), True
    if count is None or dtype is None:
        missing = (
            "like, or count and dtype" if count is None and dtype is None else "count" if count is None else "dtype"
        )
        raise TypeError(f"expected either like, or count and dtype; {missing} missing")
    element = buffers.checked_dtype(dtype)
    number = checked_integer("count", count, at_least=0, at_most=MAX_NUMBER // element.itemsize)
    return buffers.BufferDescription((number,), element), False
