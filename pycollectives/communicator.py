"""The communicator: one rank's engine on a group of ranks, and the collectives that are open on it."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .agreement import agree
from .config import checked_progress, checked_timeout, settings
from .deadline import Deadline
from .errors import ClosedError, StallError
from .partial import PartialAllreduce, warn_of_discarded
from .policies import Policy, Solo
from .specification import PartialAllreduceSpecification

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from . import _core
    from .typing import BufferSpec, DType, Late, Missed, Op, Progress

__all__ = ["Communicator"]


class Communicator:
    """A group of ranks with an engine that works in the background; made and closed by all of them (collective).

    The messages of this package go over duplicates of the communicator given, so that they never meet the user's.

    As a context manager it flushes and closes what is open, in the order of creation, and waits until every rank has
    closed everything. If the block raises, it closes at once, waits for nobody, discards data that waits, and a
    `RuntimeWarning` says how much; the other ranks go on without this one.

    Parameters
    ----------
    comm
        An mpi4py intracommunicator. MPI must be initialised, with `MPI.THREAD_MULTIPLE` unless `progress="caller"`.
    progress
        "thread": one thread per process serves all communicators; "caller": messages move only inside calls of this
        package. Default: `PYC_PROGRESS`, or "thread".
    ranks_per_node
        Ranks that work together in shared memory, on a board, instead of sending messages: 1, so that all goes by
        messages, or at least the number of ranks, if they share a machine. Default: `PYC_RANKS_PER_NODE`, or 1.
    timeout
        Default limit in seconds for creating, flushing and closing collectives. Default: `PYC_TIMEOUT`, or none.

    Raises
    ------
    ValueError, TypeError
        An argument or an environment variable is refused; no communicator, or an intercommunicator.
    RuntimeError
        MPI is not initialised, is finalised, or its thread level is too low.
    MismatchError
        Another rank's arguments were refused.
    StallError
        Some ranks do not make it within the time limit.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     total = comm.partial_allreduce(like=np.zeros(3))
    ...     result, info = total.allreduce(np.ones(3))
    ...     print(comm.rank, comm.size, result)
    0 1 [1. 1. 1.]
    """

    def __init__(
        self,
        comm: MPI.Comm,
        *,
        progress: Progress | None = None,
        ranks_per_node: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """See the class."""
        from .native import core

        _check_usable(comm)
        _warn_of_singletons()
        options = agree(
            _OverMpi(comm),
            "Communicator",
            lambda: _Options.checked(progress, ranks_per_node, timeout),
            timeout=_limit_of_creation(timeout),
        )
        self._start(
            core.Engine.mpi(comm, progress=options.progress, exit_timeout=options.exit_timeout),
            comm,
            options.ranks_per_node,
            options.timeout,
        )

    @classmethod
    def from_engine(cls, engine: _core.Engine, *, ranks_per_node: int = 1, timeout: float | None = None) -> Self:
        """Wrap an engine that is not on MPI: see `pycollectives.testing.loopback`."""
        self = cls.__new__(cls)
        self._start(engine, None, ranks_per_node, checked_timeout(timeout))
        return self

    def _start(self, engine: _core.Engine, comm: MPI.Comm | None, ranks_per_node: int, timeout: float | None) -> None:
        self._engine = engine
        try:
            self._ranks_per_node = _node_of(engine, ranks_per_node)
        except ValueError:
            engine.abandon()  # all ranks are told the same
            raise
        self._comm = comm
        self._timeout = timeout
        self._rank = engine.rank
        self._size = engine.size
        self._created = 0
        self._creation = threading.Lock()  # held while ranks agree, so that threads take turns
        self._collectives: dict[PartialAllreduce, None] = {}  # open, in the order of creation: served until closed
        self._closed = False
        _open[self] = None

    @property
    def rank(self) -> int:
        """The number of this process, 0 <= rank < size."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def ranks_per_node(self) -> int:
        """Ranks that work together in shared memory; 1: every rank is a node of its own."""
        return self._ranks_per_node

    @property
    def comm(self) -> MPI.Comm:
        """The communicator that this one was made from."""
        if self._comm is None:
            raise RuntimeError("this communicator joins threads of one process: there is no MPI communicator under it")
        return self._comm

    @property
    def progress(self) -> str:
        """Who moves messages while no call waits: "thread" or "caller"."""
        return self._engine.progress

    @property
    def transport(self) -> str:
        """What carries messages: "mpi" or "loopback"."""
        return self._engine.transport

    @property
    def closed(self) -> bool:
        """Whether this rank has closed it."""
        return self._closed

    def advance(self) -> bool:
        """Move what can be moved, without waiting; whether anything did. For `progress="caller"`."""
        return self._engine.advance()

    def partial_allreduce(
        self,
        like: BufferSpec | None = None,
        *,
        count: int | None = None,
        dtype: DType | None = None,
        op: Op = "SUM",
        policy: Policy = Solo(),  # noqa: B008 - immutable
        late: Late = "accumulate",
        missed: Missed = "latest",
        max_staleness: int | None = None,
        algorithm: str = "auto",
        history: int = 8,
        name: str | None = None,
    ) -> PartialAllreduce:
        """Make a partial allreduce; collective (eager-SGD, section 4).

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, whose shape and dtype contributions and results have.
        count, dtype
            Instead of `like`: elements, and NumPy's or MPI's type of them. Results are flat.
        op
            `MPI.SUM`, `MPI.PROD`, `MPI.MIN`, `MPI.MAX`, or `pycollectives.AVG`, which divides by the number of
            contributors; or its name.
        policy
            Who may start a round.
        late
            What becomes of data that came too late for a round. "accumulate": it goes into the next round, combined
            with `op` with what this rank contributes until then. "replace": it goes into the next round, unless newer
            data of this rank replaces it first. "drop": data that misses the round that its call completes with is
            discarded at once, unless a round waits for it (`max_staleness`); other data that no round has taken yet is
            replaced by newer.
        missed
            What a late call is given: "latest", the newest result, or "sum", the sum of all results that this rank
            had not been given (`op` SUM or AVG).
        max_staleness
            After so many rounds in a row for which a rank had nothing to give, the next waits for it. None: never.
        algorithm
            A name that `python -m pycollectives info` lists, or "auto": chosen by bytes and ranks.
        history
            Rounds, at least 1, that a call can have missed before `RoundInfo.overrun` is True. Under `missed="sum"`
            so many results are kept one by one, and older ones are folded into a running total: nothing is lost,
            and memory stays bounded.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        ClosedError
            The communicator is closed.
        """
        return self._create(
            "partial_allreduce",
            lambda: like,
            count=count,
            dtype=dtype,
            op=op,
            policy=policy,
            late=late,
            missed=missed,
            max_staleness=max_staleness,
            algorithm=algorithm,
            history=history,
            name=name,
        )

    def _create(
        self,
        call: str,
        like: Callable[[], object],
        *,
        count: object = None,
        dtype: object = None,
        name: object = None,
        **options: object,
    ) -> PartialAllreduce:
        """Make a partial allreduce; what `like` raises is a refusal of this rank that the others learn of."""
        from .native import core

        with self._creation:
            self._check_open()
            specification = agree(
                self._engine,
                call,
                lambda: PartialAllreduceSpecification.checked(
                    like(),
                    count=count,
                    dtype=dtype,
                    name=f"partial_allreduce[{self._created}]" if name is None else name,
                    size=self._size,
                    algorithms=[str(algorithm["name"]) for algorithm in core.algorithms()],
                    on_board=self._ranks_per_node > 1,
                    **options,
                ),
                timeout=self._timeout,
            )
            collective = PartialAllreduce(
                core.PartialAllreduce(
                    self._engine,
                    convert=specification.readable,
                    timeout=self._timeout,
                    **specification.engine_arguments(),
                ),
                specification,
                forget=lambda closed: self._collectives.pop(closed, None),
                timeout=self._timeout,
            )
            self._created += 1
            self._collectives[collective] = None
            return collective

    def close(self, timeout: float | None = None) -> None:
        """Flush and close what is open, in the order of creation, and wait for all ranks to do so; collective.

        Parameters
        ----------
        timeout
            Seconds for all of it; None for the communicator's default.

        Raises
        ------
        StallError
            Names the ranks that have not closed. The communicator stays open: call again, or `abandon`.
        """
        if self._closed:
            return
        deadline = Deadline(self._timeout if timeout is None else checked_timeout(timeout))
        for collective in tuple(self._collectives):
            if not collective.closed:
                collective.flush(deadline.remaining())
            collective.close()
        self._engine.close(timeout=deadline.remaining())
        self._end()

    def abandon(self) -> int:
        """Close at once, wait for nobody and discard what waits; the number of contributions discarded.

        The engine serves the other ranks' rounds, with this rank absent, until the process ends.
        """
        if self._closed or not self._engine.in_own_process:
            return 0
        discarded = sum(collective.abandon() for collective in tuple(self._collectives))
        self._engine.abandon()
        self._end()
        return discarded

    def _end(self) -> None:
        self._closed = True
        _open.pop(self, None)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the communicator is closed")

    def __repr__(self) -> str:
        """Show the rank and what is open."""
        state = "closed" if self._closed else f"{len(self._collectives)} open"
        return f"<Communicator rank {self._rank} of {self._size}, {state}>"

    def __enter__(self) -> Self:
        """Return itself."""
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after an exception close at once and warn of what is discarded."""
        if kind is None:
            try:
                self.close()
            finally:
                self.abandon()
        else:
            what = f"{self!r} was left by {kind.__name__}"
            any_open = bool(self._collectives)
            discarded = self.abandon()
            if any_open:
                warn_of_discarded(what, discarded)


@dataclass(frozen=True)
class _Options:
    """Checked arguments of `Communicator`. Ranks may make progress in different ways."""

    progress: Progress
    timeout: float | None
    exit_timeout: float | None
    ranks_per_node: int

    @classmethod
    def checked(cls, progress: Progress | None, ranks_per_node: int | None, timeout: float | None) -> _Options:
        environment = settings()
        progress = environment.progress if progress is None else checked_progress(progress)
        if ranks_per_node is not None and (not isinstance(ranks_per_node, int) or ranks_per_node < 1):
            raise ValueError(f"ranks_per_node: expected an integer of at least 1 or None, got {ranks_per_node!r}")
        ranks_per_node = environment.ranks_per_node if ranks_per_node is None else ranks_per_node
        timeout = environment.timeout if timeout is None else checked_timeout(timeout)
        _check_thread_level(progress)
        return cls(progress, timeout, environment.exit_timeout, ranks_per_node)

    def signature(self) -> dict[str, str | int | None]:
        return {"ranks_per_node": self.ranks_per_node}


class _OverMpi:
    """Agreement before there is an engine: by collectives on the user's communicator, as its duplication is.

    They are non-blocking: a blocking call would answer neither Ctrl-C nor a time limit. Point-to-point messages would
    tell which ranks are missing, but could meet the user's own.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def exchange(self, mine: bytes, *, what: str, timeout: float | None = None) -> list[bytes]:
        deadline = Deadline(timeout)

        def complete(request: MPI.Request, *buffers: object) -> None:
            passes = 0
            try:
                while not request.Test():
                    if deadline.passed:
                        raise StallError(
                            f"{what}: some ranks did not call it within {timeout:g} s, or gave up earlier (it is "
                            "collective, and MPI does not tell which); no collective works on that communicator now"
                        )
                    passes += 1
                    time.sleep(0 if passes <= 200 else 1e-3)
            except BaseException:
                # MPI may write to the buffers until MPI_Finalize, which comes after this module ends: never freed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object((request, buffers)))
                raise

        length = np.array([len(mine)], np.int32)
        lengths = np.empty(self._comm.size, np.int32)
        complete(self._comm.Iallgather(length, lengths), length, lengths)
        everything = np.empty(lengths.sum(), np.uint8)
        complete(self._comm.Iallgatherv(mine, [everything, lengths]), mine, everything, lengths)
        ends = np.cumsum(lengths)
        return [everything[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True)]


def _node_of(engine: _core.Engine, ranks_per_node: int) -> int:
    """Return how many ranks work together in shared memory: one, or all."""
    together = engine.local_ranks == engine.size
    if ranks_per_node == 1:
        return 1
    if not together or ranks_per_node < engine.size:
        raise ValueError(
            f"ranks_per_node: expected 1, or at least {engine.size} (all ranks, on one machine), got {ranks_per_node}: "
            "this build has no nodes of several ranks beside others"
        )
    return engine.size


def _limit_of_creation(timeout: object) -> float | None:
    """Return the limit that the arguments ask for; None if they are refused, which `_Options` says."""
    try:
        return settings().timeout if timeout is None else checked_timeout(timeout)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None


def _check_usable(comm: object) -> None:
    from .native import MPI

    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: expected an mpi4py communicator such as MPI.COMM_WORLD, got {comm!r}")
    if not MPI.Is_initialized():
        raise RuntimeError("MPI is not initialised: call MPI.Init_thread(MPI.THREAD_MULTIPLE) first")
    if MPI.Is_finalized():
        raise RuntimeError("MPI is finalised: no communicator can be made any more")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm: expected a communicator that this rank belongs to, got MPI.COMM_NULL")
    if comm.Is_inter():
        raise ValueError("comm: expected an intracommunicator, got an intercommunicator; join both groups with Merge()")


LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Where launchers say how many ranks they started, the innermost first: mpirun inside a job step of SLURM."""


def _warn_of_singletons() -> None:
    """A launcher that the MPI library does not understand starts N programs of one rank each, without an error."""
    from .native import LIBRARY, MPI

    announced, variable = next(((os.environ[name], name) for name in LAUNCHERS if name in os.environ), ("1", ""))
    if MPI.COMM_WORLD.size == 1 and announced.isdecimal() and int(announced) > 1:
        warnings.warn(
            f"{variable} says {announced} ranks, MPI.COMM_WORLD has 1: every rank works alone, since the launcher does "
            f"not belong to {LIBRARY}; use that MPI's own mpirun, or srun --mpi=pmix",
            RuntimeWarning,
            stacklevel=3,  # the user's call of Communicator
        )


def _check_thread_level(progress: Progress) -> None:
    from .native import MPI, THREAD_LEVELS

    level = MPI.Query_thread()
    if progress == "thread" and level < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "progress='thread': expected MPI initialised with MPI_THREAD_MULTIPLE (mpi4py's default: see "
            f"mpi4py.rc.thread_level), got {THREAD_LEVELS[level]}; use that level, or progress='caller'"
        )


_open: dict[Communicator, None] = {}
"""Communicators of this process that are not closed."""


def _abandon_all() -> None:
    """Close what the program forgot, before mpi4py finalises MPI, and say so in one line each."""
    for communicator in tuple(_open):
        names = ", ".join(repr(collective.name) for collective in communicator._collectives) or "none"
        discarded = communicator.abandon()
        print(
            f"pycollectives: rank {communicator.rank}: the program ends with a communicator that is not closed "
            f"(open collectives: {names}; contributions discarded: {discarded}); "
            "use `with` or call close()",
            file=sys.stderr,
        )


atexit.register(_abandon_all)  # mpi4py finalises later, when the interpreter itself has ended
os.register_at_fork(after_in_child=_open.clear)  # they belong to the parent
