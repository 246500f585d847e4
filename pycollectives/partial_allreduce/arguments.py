"""The arguments of a partial allreduce: checks on one rank, and a form that ranks can compare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from ..arguments import LOCAL, MAX_NUMBER, Arguments, Template, creation, one_of, template
from ..policies import Policy, Quorum, as_policy
from ..selection import choice, tables
from ..selection.model import algorithm_names
from ..support import buffers, operations
from ..support.operations import checked_op
from ..support.validation import checked_choice, checked_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.costs import Costs
    from ..support.typing import Array, BufferSpec, DType, Late, Missed, Op

MISSED = ("latest", "sum")


def _like(like: BufferSpec | None) -> Any:
    return None if like is None else template(like)


def _policy(policy: Policy | str) -> Policy:
    given, (group, _, original_size) = as_policy(policy), creation()
    if original_size is None:
        return given.for_size(group.size)
    given.for_size(original_size)  # raises if it was invalid from the start
    return given.for_survivors(group.size).for_size(group.size)


def _op(op: Op) -> str:
    return checked_op(op)


def _missed(missed: Missed | None) -> str:
    return "" if missed is None else checked_choice("missed", missed, MISSED)


def _max_staleness(rounds: int | None) -> int | None:
    return None if rounds is None else checked_integer("max_staleness", rounds, at_least=0, at_most=MAX_NUMBER)


def _algorithm(algorithm: str) -> str:
    if not isinstance(algorithm, str):
        raise TypeError(f"algorithm: expected a name such as 'auto', got {algorithm!r}")
    return algorithm


def _activation(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"activation: expected a name such as 'auto', got {name!r}")
    kind, colon, latency = name.partition(":")
    if colon:
        is_known = kind == "tree" and latency.isascii() and latency.isdecimal() and 1 <= int(latency) < 2**31
    else:
        is_known = kind in ("auto", "dissemination", "tree")
    if not is_known:
        raise ValueError(f"activation: expected 'auto', 'dissemination', 'tree' or 'tree:K' with K >= 1, got {name!r}")
    return name


def _history(rounds: int) -> int:
    return checked_integer("history", rounds, at_least=1, at_most=MAX_NUMBER)


@attrs.frozen
class PartialAllreduceArguments(Arguments):
    """Make a `PartialAllreduce`, whose rounds do not wait for stragglers; collective (eager-SGD, section 4).

    Parameters
    ----------
    like
        A buffer, or `[buffer, count, type]`, with the dtype and count of contributions and the shape of results. If it
        is an array on a CUDA device, all contributions and results are on that device: see "Arrays on a device" in
        docs/semantics.md.
    count, dtype
        The number of elements, and the NumPy or MPI element type; use them instead of `like`. Results are then flat.
    op
        An MPI operation, such as `MPI.SUM`, for element types for which MPI defines it; `pycollectives.AVG`, which
        divides by the number of contributors; or the name of one of these.
    policy
        When a round starts: an object such as `Quorum(2)`, or its string, such as "quorum:2". Default: when half of the
        ranks have arrived.
    late
        What happens to data that is too late for a round. "accumulate": it goes into the next round, combined by `op`
        with this rank's later contributions. "replace": it goes into the next round, unless newer data from this rank
        replaces it. "drop": data that misses the round with which its call completes is discarded at once, unless a
        round waits for it (`max_staleness`). Newer data replaces older data that no round has taken.
    missed
        The result of a late call. "sum" (only for `op` SUM and AVG): the sum of all results that this rank has not
        received, so that all ranks get the same total if they add up their results. "latest": only the newest result.
        Default: "sum" for SUM and AVG, otherwise "latest".
    max_staleness
        After this many rounds in a row without data from a rank, the next round waits for that rank. If None, no round
        waits.
    activation
        How messages between P nodes, or between P ranks that share no memory, start a round. It has no effect if all
        ranks share memory. "dissemination": in ceil(log2 P) steps with P ceil(log2 P) messages (eager-SGD, section
        4.1.1). "tree": with P - 1 messages, and another one for each node that starts the round itself (ours).
        "tree:K": a tree for messages that take K times as long to arrive as to send. "auto": the fastest according to
        the cost model, or "tree" if there is no model.
    algorithm
        "auto": the best algorithm for the ranks, nodes and bytes. A cost model chooses it if every rank has a core and
        `python -m pycollectives tune` has not written a table; otherwise, a table of measurements does.
        "board": shared memory within nodes, and messages between nodes by the best schedule. "board+NAME": the same
        with the schedule NAME. NAME: messages among all ranks by that schedule; `python -m pycollectives info` lists
        the names. For arrays on a CUDA device, messages go through host memory ("staged").
    history
        The number of rounds, at least 1, that a call can miss before `RoundInfo.overrun` is True. Under `missed="sum"`,
        this many results are kept individually, and older ones are added to a running total, so that none is lost.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "partial_allreduce"

    like: Template = attrs.field(default=None, converter=_like)
    count: int | None = attrs.field(default=None, kw_only=True, metadata=LOCAL)
    dtype: DType | None = attrs.field(default=None, kw_only=True, metadata=LOCAL)
    op: str = attrs.field(default="SUM", kw_only=True, converter=_op)
    policy: Policy = attrs.field(default=Quorum(), kw_only=True, converter=_policy)
    late: Late = attrs.field(default="accumulate", kw_only=True, validator=one_of("accumulate", "replace", "drop"))
    missed: str = attrs.field(default=None, kw_only=True, converter=_missed)
    max_staleness: int | None = attrs.field(default=None, kw_only=True, converter=_max_staleness)
    activation: str = attrs.field(default="auto", kw_only=True, converter=_activation)
    algorithm: str = attrs.field(default="auto", kw_only=True, converter=_algorithm)
    history: int = attrs.field(default=8, kw_only=True, converter=_history)
    choice: choice.Choice = attrs.field(init=False, metadata=LOCAL)
    selection_table: str | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Resolve the defaults and the algorithm, which depend on several arguments."""
        object.__setattr__(self, "like", self._template_or_count())
        like, group = self.like, creation().group
        operations.checked_op_on(self.op, like.buffer.dtype)
        if self.missed == "":  # no result is lost, and replicas stay equal
            object.__setattr__(self, "missed", "sum" if self.op in ("SUM", "AVG") else "latest")
        if self.missed == "sum" and self.op not in ("SUM", "AVG"):
            raise ValueError(f"missed='sum' adds results up: expected op SUM or AVG, got {self.op}")
        if like.device is not None:
            operations.check_op_on_device(self.op, like.buffer.dtype)
        sparse = choice.is_sparse(self.policy, self.late, self.max_staleness)
        choose = _choose if like.device is None else _choose_on_device
        nbytes = like.buffer.count * like.buffer.dtype.itemsize
        chosen, table = choose(self.algorithm, algorithm_names(), group.nodes, nbytes, sparse, group.costs)
        if self.activation != "auto":
            chosen = replace(chosen, activation=self.activation)
        nodes = group.nodes if chosen.board else range(group.size)
        staged = like.device is not None and len(set(nodes)) > 1
        object.__setattr__(self, "choice", chosen)
        object.__setattr__(self, "activation", chosen.activation)
        object.__setattr__(self, "selection_table", table)
        object.__setattr__(self, "algorithm", chosen.staged_name if staged else chosen.name)

    def _template_or_count(self) -> Template:
        count, dtype = self.count, self.dtype
        if self.like is not None:
            if count is not None or dtype is not None:
                raise TypeError("expected either like, or count and dtype; got both")
            return self.like
        if count is None or dtype is None:
            missing = (
                "like, or count and dtype" if count is None and dtype is None else "count" if count is None else "dtype"
            )
            raise TypeError(f"expected either like, or count and dtype; {missing} missing")
        return Template.of_count(count, dtype)

    def signature(self) -> dict[str, str | int | None]:
        """Return the values that must be the same on all ranks; the shape may differ."""
        return {
            **super().signature(),
            "segment_bytes": self.choice.segment_bytes,
        }

    def readable(self, x: object) -> Array:
        """Return the memory of a contribution that is not a plain array; raise if count or dtype is wrong."""
        return buffers.as_bytes_exporter(buffers.matching_array(x, self.like.buffer, name=self.name))

    def writable(self, out: object) -> Array:
        """Return `out` as an array of the result's shape; raise if it is read-only, or count or dtype is wrong."""
        return buffers.matching_array(out, self.like.buffer, writable=True).reshape(self.like.buffer.shape)

    def for_engine(self, nodes: Sequence[int]) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective, for ranks on `nodes`."""
        buffer, chosen = self.like.buffer, self.choice
        arguments = {
            "dtype_name": buffers.name_of(buffer.dtype),
            "op": self.op,
            **self.policy.engine_arguments(),
            "late": self.late,
            "missed": self.missed,
            "max_staleness": self.max_staleness,
            "nodes": tuple(nodes) if chosen.board else tuple(range(len(nodes))),
            "activation": self.activation,
            "algorithm": chosen.schedule or "recursive_doubling",  # nothing is sent on a single node
            "history": self.history,
            "name": self.name,
        }
        if self.like.device is not None:
            return {"device": self.like.device, "count": buffer.count, **arguments}
        return {
            "shape": buffer.shape,
            "dtype": buffer.dtype,
            "segment_bytes": chosen.segment_bytes or choice.DEFAULT_SEGMENT_BYTES,
            "convert": self.readable,
            "writable": self.writable,
            **arguments,
        }


def _choose(
    algorithm: str, algorithms: Sequence[str], nodes: Sequence[int], nbytes: int, sparse: bool, costs: Costs | None
) -> tuple[choice.Choice, str | None]:
    """Return the choice for `algorithm`, and a description of the table used; None if no table was used."""
    size, count = len(nodes), len(set(nodes))
    asked = algorithm == "auto" or (count < size and algorithm.startswith(choice.BOARD)) or costs is not None
    table = tables.for_costs(costs) if asked else tables.built_in()
    chosen = choice.resolve(algorithm, algorithms, table, ranks=size, nodes=count, nbytes=nbytes, sparse=sparse)
    return chosen, tables.describe(table) if asked else None


def _choose_on_device(
    algorithm: str, algorithms: Sequence[str], nodes: Sequence[int], nbytes: int, sparse: bool, costs: Costs | None
) -> tuple[choice.Choice, str | None]:
    """Do the same as `_choose`, for arrays on devices. "auto" uses a board if possible, so that no data is staged."""
    count = len(set(nodes))
    if count == 1 and algorithm in ("auto", choice.BOARD):
        return choice.Choice(board=True, schedule=None), None
    if algorithm == "auto" and count < len(nodes):
        algorithm = choice.BOARD
    return _choose(algorithm, algorithms, nodes, nbytes, sparse, costs)
