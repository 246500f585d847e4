"""The options of a communicator: its arguments, checked on one rank and compared before there is an engine."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..support.costs import Costs
from ..support.deadline import Deadline
from ..support.environment import Settings, checked_progress, checked_ranks_per_node, settings
from ..support.errors import StallError
from ..support.nodes import Place
from ..support.stall_warning import StallWarning
from ..support.validation import checked_choice, checked_integer, checked_timeout
from .consistency import agree

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mpi4py import MPI

    from ..support.typing import OnFailure, Progress, Respawn

_turns: dict[int, threading.RLock] = {}
_making_turn = threading.Lock()


def turn_on(comm: MPI.Comm) -> AbstractContextManager[object]:
    """Return the lock of an MPI communicator, which keeps threads from mixing its collectives.

    Each communicator has its own lock. A single lock could deadlock ranks that use communicators in different orders.
    """
    _check_usable(comm)
    with _making_turn:
        return _turns.setdefault(comm.py2f(), threading.RLock())


class Failures(NamedTuple):
    """The arguments of `Communicator` that concern deaths of ranks."""

    on_failure: OnFailure = "raise"
    spares: int = 0
    respawn: Respawn = False
    others_respawn: bool = False
    """Whether an open communicator of this process was made with `respawn=True`."""

    @property
    def replaces(self) -> bool:
        """Whether dead ranks are replaced."""
        return bool(self.respawn) or self.spares > 0

    def checked(self, size: int, *, check: bool) -> Failures:
        """Return the checked arguments for a job of `size` ranks. `check`: whether PYC_CHECK=1 is set."""
        checked_choice("on_failure", self.on_failure, ("raise", "continue"))
        if self.on_failure == "continue" and check:
            raise ValueError("on_failure: expected 'raise' with PYC_CHECK=1, got 'continue'; unset PYC_CHECK")
        spares = checked_integer("spares", self.spares, at_least=0, at_most=size - 1)
        if not isinstance(self.respawn, bool) and self.respawn != "background":
            raise ValueError(f"respawn: expected True, False or 'background', got {self.respawn!r}")
        if self.on_failure == "raise" and spares:
            raise ValueError(f"spares: expected 0 with on_failure='raise', got {spares}")
        if self.on_failure == "raise" and self.respawn:
            raise ValueError(f"respawn: expected False with on_failure='raise', got {self.respawn!r}")
        if self.respawn and self.others_respawn:
            found = f"respawn: expected False, got {self.respawn!r}"
            raise ValueError(f"{found}: close the open communicator that has respawn first")
        return self._replace(spares=spares)


RAISE = Failures()
"""The defaults: after a death, calls raise an error."""


@dataclass(frozen=True)
class Options:
    """Checked arguments of `Communicator`. Only `progress` may differ between ranks."""

    progress: Progress
    timeout: float | None
    exit_timeout: float | None
    heartbeat_timeout: float | None
    ranks_per_node: int | None
    check: bool
    costs: Costs | None
    tuned: bool
    failures: Failures = RAISE

    @classmethod
    def agreed(
        cls,
        comm: MPI.Comm,
        progress: Progress | None,
        ranks_per_node: object,
        timeout: float | None,
        costs: object = None,
        *,
        is_tuned: Callable[[], bool],
        failures: Failures = RAISE,
        limit: float | None = None,
    ) -> tuple[Options, list[Place]]:
        """Check the arguments of `Communicator` and return them with each rank's machine; collective.

        `is_tuned`: whether this process uses a selection table other than the built-in one.
        `limit`: seconds to wait for the other ranks; None for the limit in the arguments.
        """
        _warn_of_singletons()
        default, warn_after = _limits_of_creation(timeout)
        limit = default if limit is None else limit
        over_mpi = _OverMpi(comm, warn_after)
        options = agree(
            over_mpi,
            "Communicator",
            lambda: cls.checked(progress, ranks_per_node, timeout, costs, is_tuned, failures, comm.size),
            timeout=limit,
        )
        # The first step may succeed on a rank that arrives after the others gave up. The second one then fails.
        # Duplicating the communicator has no time limit, and is safe only after all ranks have arrived.
        here = Place.here(tuned=options.tuned)
        places = over_mpi.compare(here.encode(), what="Communicator", timeout=limit)
        return options, [here] * comm.size if places is None else list(map(Place.decode, places))

    @classmethod
    def checked(
        cls,
        progress: Progress | None,
        ranks_per_node: object,
        timeout: float | None,
        costs: object,
        is_tuned: Callable[[], bool],
        failures: Failures = RAISE,
        size: int = 1,
    ) -> Options:
        """Check the arguments without communication. Defaults are from the environment."""
        environment = settings()
        progress = environment.progress if progress is None else checked_progress(progress)
        per_node = environment.ranks_per_node if ranks_per_node is None else checked_ranks_per_node(ranks_per_node)
        timeout = environment.timeout if timeout is None else checked_timeout(timeout)
        if progress == "thread":
            _check_thread_level("progress='thread'")
        heartbeat = environment.heartbeat_timeout
        if heartbeat is not None and progress == "caller":
            raise ValueError(
                "environment variable PYC_HEARTBEAT_TIMEOUT: expected 'none' under progress='caller', where a rank "
                f"sends no heartbeats while it computes, got {heartbeat:g}"
            )
        if costs is not None and not isinstance(costs, Costs):
            raise TypeError(f"costs: expected pycollectives.Costs or None, got {costs!r}")
        exit_timeout, check = environment.exit_timeout, environment.check
        failures = failures.checked(size, check=check)
        if failures.respawn == "background":
            _check_thread_level("respawn='background'")
        return cls(progress, timeout, exit_timeout, heartbeat, per_node, check, costs, is_tuned(), failures)

    def signature(self) -> dict[str, str | int | None]:
        heartbeat = "none" if self.heartbeat_timeout is None else f"{self.heartbeat_timeout:g}"
        return {
            "ranks_per_node": self.ranks_per_node,
            "PYC_CHECK": int(self.check),
            "PYC_HEARTBEAT_TIMEOUT": heartbeat,
            "costs": None if self.costs is None else repr(self.costs),
            "on_failure": self.failures.on_failure,
            "spares": self.failures.spares,
            "respawn": str(self.failures.respawn),
        }


class _OverMpi:
    """Agreement before there is an engine, by collectives on the user's communicator.

    The collectives are non-blocking, because a blocking call would react neither to Ctrl-C nor to a time limit.
    Point-to-point messages would show which ranks are missing, but could mix with the user's messages.
    """

    def __init__(self, comm: MPI.Comm, warn_after: float | None) -> None:
        self._comm = comm
        self._warn_after = warn_after

    def compare(self, mine: bytes, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """Return None if all ranks pass the same bytes, otherwise every rank's bytes, in the order of ranks."""
        from ..support.native import MPI

        deadline = Deadline(timeout)
        warning = StallWarning(self._warn_after, f"rank {self._comm.rank} of {self._comm.size}")

        def complete(request: MPI.Request, *buffers: object) -> None:
            passes = 0
            try:
                while not request.Test():
                    if deadline.passed:
                        raise StallError(
                            f"{what}: some ranks did not call it within {timeout:g} s, or gave up earlier (it is "
                            "collective, and MPI does not report which ranks are missing); no collective works on the "
                            "communicator now"
                        )
                    if warning.is_due():
                        warning.say(
                            what, "some ranks have not called it (it is collective, and MPI does not report which)"
                        )
                    passes += 1
                    time.sleep(0 if passes <= 20 else min(1e-5 * passes, 5e-3))
            except BaseException:
                # MPI may write to the buffers until MPI_Finalize, after this module has ended: never free them.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object((request, buffers)))
                raise

        digest = np.frombuffer(hashlib.blake2b(mine, digest_size=16).digest(), np.uint64)
        greatest = np.concatenate([digest, ~digest])  # the complement gives the minimum
        complete(self._comm.Iallreduce(MPI.IN_PLACE, greatest, MPI.MAX), greatest)
        if np.array_equal(greatest[:2], ~greatest[2:]):
            return None
        length = np.array([len(mine)], np.int32)
        lengths = np.empty(self._comm.size, np.int32)
        complete(self._comm.Iallgather(length, lengths), length, lengths)
        everything = np.empty(lengths.sum(), np.uint8)
        complete(self._comm.Iallgatherv(mine, [everything, lengths]), mine, everything, lengths)
        ends = np.cumsum(lengths)
        return [everything[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True)]


def _limits_of_creation(timeout: object) -> tuple[float | None, float | None]:
    """Return the time limit and the time of the warning. Invalid values, refused later, give the defaults."""
    try:
        environment = settings()
        limit = environment.timeout if timeout is None else checked_timeout(timeout)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None, Settings.stall_warning
    return limit, environment.stall_warning


def _check_usable(comm: object) -> None:
    """Refuse an unusable communicator; an MPI call on it would end the process."""
    from ..support.native import MPI

    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: expected an mpi4py communicator such as MPI.COMM_WORLD, got {comm!r}")
    if not MPI.Is_initialized():
        raise RuntimeError("MPI is not initialized: call MPI.Init_thread(MPI.THREAD_MULTIPLE) first")
    if MPI.Is_finalized():
        raise RuntimeError("MPI is finalized: no communicator can be made")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm: expected a communicator that this rank belongs to, got MPI.COMM_NULL")
    if comm.Is_inter():
        raise ValueError("comm: expected an intracommunicator, got an intercommunicator; join both groups with Merge()")


LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""The variables in which launchers store the number of ranks, the innermost first: mpirun may run in a SLURM step."""


def _warn_of_singletons() -> None:
    """Warn if the launcher belongs to another MPI, and so started N programs of one rank each."""
    from ..support.native import LIBRARY, MPI

    announced, variable = next(((os.environ[name], name) for name in LAUNCHERS if name in os.environ), ("1", ""))
    if MPI.COMM_WORLD.size == 1 and announced.isdecimal() and int(announced) > 1:
        warnings.warn(
            f"{variable} gives {announced} ranks, but MPI.COMM_WORLD has 1: every rank works alone, since the launcher "
            f"does not belong to {LIBRARY}; use that MPI's own mpirun, or srun --mpi=pmix",
            RuntimeWarning,
            stacklevel=6,  # the user's call of Communicator
        )


def _check_thread_level(argument: str) -> None:
    from ..support.native import MPI, THREAD_LEVELS

    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        other = "respawn=True" if argument.startswith("respawn") else "progress='caller'"
        raise RuntimeError(
            f"{argument}: expected MPI initialized with MPI_THREAD_MULTIPLE (mpi4py's default: see "
            f"mpi4py.rc.thread_level), got {THREAD_LEVELS[level]}; initialize MPI with it, or use {other}"
        )
