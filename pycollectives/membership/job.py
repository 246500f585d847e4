"""The job of a communicator that replaces dead ranks: its members, and the waiting spares.

The members and spares share an MPI communicator, which they shrink after a death (agreement/shrinking.py). Waiting
spares take the numbers of dead ranks; new processes take the remaining numbers. The engine's communicator contains only
the members.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..agreement.shrinking import Shrinking, Words, tag_of_survivors
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError
from ..support.launchers import check_fault_tolerant
from . import respawning
from .respawning import Starting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mpi4py import MPI

    from .. import _core
    from ..communicator import Communicator
    from ..support.typing import Respawn

    MadeWithin = Callable[[MPI.Comm, float | None, tuple[Any, ...]], Communicator]

__all__ = ["Job", "ShrunkCommunicator", "ShrunkJob"]

PAUSE_S = 2e-3
"""Pause between a spare's looks for messages."""
END_S = 5.0
"""The longest time that a member, at its end, waits for spares, which look for its message every PAUSE_S."""
LOOK_S = 0.2
"""Seconds between a spare's checks for members that have died, or have ended during a change."""

ATTEMPTS = 3
"""The number of processes started for a dead rank's number before the survivors continue without it."""

_sending: list[MPI.Request] = []
"""Sends that may be incomplete."""


@dataclass(frozen=True)
class Job:
    """The members and spares that are alive.

    Attributes
    ----------
    mpi
        Their MPI communicator.
    numbers
        For each rank of `mpi`, its number as a member; None for a waiting spare.
    originals
        For each rank of `mpi`, its rank in the application's communicator.
    size
        The initial number of members.
    epoch
        The number of times that the members have changed.
    joined
        The numbers that spares or new processes took in the newest change, ascending.
    respawn
        Whether new processes replace dead members that no spare replaces: see `Communicator`.
    """

    mpi: MPI.Intracomm
    numbers: tuple[int | None, ...]
    originals: tuple[int, ...]
    size: int
    epoch: int = 0
    joined: tuple[int, ...] = ()
    respawn: Respawn = False

    @classmethod
    def of(cls, comm: MPI.Comm, spares: int, respawn: Respawn = False) -> Job:
        """Make the job of a communicator, whose highest ranks are spares; collective."""
        check_fault_tolerant(comm.size)
        size = comm.size - spares
        mpi = cast("MPI.Intracomm", comm.Dup())
        mpi.Set_name(comm.Get_name())
        return cls(mpi, (*range(size), *[None] * spares), tuple(range(comm.size)), size, respawn=respawn)

    @classmethod
    def of_new_process(cls) -> Job:
        """In a new process, return the job that `with_new_processes` returns; collective."""
        mpi, (name, *described) = respawning.join()
        mpi.Set_name(name)
        return cls(mpi, *described)

    @property
    def number(self) -> int | None:
        return self.numbers[self.mpi.rank]

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(number for number in self.numbers if number is not None))

    def after(self, mpi: MPI.Intracomm, survivors: Sequence[int]) -> Job:
        """Return the job of `survivors`, which are ranks of this job, with spares in place of the dead ranks."""
        numbers = [self.numbers[rank] for rank in survivors]
        has_member = any(number is not None for number in numbers)
        vacant = self._vacant(numbers) if has_member else []
        waiting = [place for place, number in enumerate(numbers) if number is None]
        joined = dict(zip(waiting, vacant, strict=False))
        return Job(
            mpi,
            tuple(joined.get(place, number) for place, number in enumerate(numbers)),
            tuple(self.originals[rank] for rank in survivors),
            self.size,
            self.epoch + 1,
            tuple(joined.values()),
            self.respawn,
        )

    def with_new_processes(self, starter: Starter) -> Job:
        """Return the job with new processes for vacant numbers, if `respawn` is set; collective."""
        if not self.respawn or not self.members:
            return self
        while vacant := self._agreed_vacant(starter):
            described = (
                (*self.numbers, *vacant),
                (*self.originals, *vacant),
                self.size,
                self.epoch,
                tuple(sorted((*self.joined, *vacant))),
                self.respawn,
            )
            name = self.mpi.Get_name()
            mpi = respawning.connect(self.mpi, starter.take(), (name, *described))
            if mpi is not None:
                mpi.Set_name(name)
                return Job(mpi, *described)
        return self

    def _agreed_vacant(self, starter: Starter) -> list[int]:
        """Return the numbers for which new processes join now; collective."""
        vacant: list[int] = self.mpi.bcast(starter.next_for(self) if self.is_lowest else [])
        if self.failed():  # then the received numbers may be wrong
            raise RankFailedError("a rank died while new processes were to start")
        return vacant

    @property
    def is_lowest(self) -> bool:
        """Whether this rank starts new processes."""
        return self.mpi.rank == 0

    @property
    def vacant(self) -> list[int]:
        """The numbers of dead members that no rank has taken."""
        return self._vacant(self.numbers)

    def _vacant(self, numbers: Sequence[int | None]) -> list[int]:
        return [number for number in range(self.size) if number not in numbers]

    def make_members(self) -> MPI.Comm:
        """Return an MPI communicator of the members, in the order of their numbers; collective, also over spares."""
        from ..support.native import MPI

        # Not `Create_group`, which only the members would call: in Open MPI 5.0.11 it hangs if one of them dies in it.
        number = self.number
        made = self.mpi.Split(MPI.UNDEFINED if number is None else 0, number or 0)
        if number is not None:  # otherwise it is COMM_NULL
            made.Set_name(self.mpi.Get_name())
        return made

    def failed(self) -> list[int]:
        """Return the dead ranks of `mpi`, and let the live ranks exchange messages again."""
        from ..support.native import MPI

        self.mpi.Ack_failed()
        failed, whole = self.mpi.Get_failed(), self.mpi.Get_group()
        ranks = list(MPI.Group.Translate_ranks(failed, list(range(failed.size)), whole))
        failed.Free()
        whole.Free()
        return ranks

    # ------------------------------------------------------------------------------------------------ spares

    def end(self) -> None:
        """Notify the waiting spares that this member makes no further calls; return when they have received it."""
        from ..support.native import MPI

        if self.respawn:
            respawning.end_apart()
        limit = Deadline(END_S)
        for rank, number in enumerate(self.numbers):
            if number is None:
                with contextlib.suppress(MPI.Exception):  # the spare has died
                    request = self.mpi.Issend([b"", MPI.BYTE], rank, _end_tag())
                    _sending.append(request)
                    while not request.Test() and not limit.passed:
                        time.sleep(PAUSE_S)

    def wait(self, arguments: tuple[Any, ...], made_within: MadeWithin) -> tuple[Job, Communicator]:
        """Return the job and the communicator in which this spare replaces a dead member.

        Raises
        ------
        SystemExit
            All members have ended or died, and this rank was not needed.
        """
        job, gone = self, set[int]()
        shrunk: ShrunkJob | None = None
        look = Deadline(0)
        while True:
            job._receive_ends(gone)
            if look.passed:
                # MPI reports a death once per communicator: here to `shrunk`, once it exists.
                gone.update(job.failed() if shrunk is None else shrunk.look_for_deaths())
                look = Deadline(LOOK_S)
            if all(rank in gone for rank, number in enumerate(job.numbers) if number is not None):
                raise SystemExit(0)
            if shrunk is None:
                if not job._is_called():
                    time.sleep(PAUSE_S)
                    continue
                shrunk = ShrunkJob(job, arguments, made_within)
            with contextlib.suppress(StallError, RuntimeError):  # members may have ended, or may try again
                made = shrunk.run(Deadline(LOOK_S))
                job, gone, shrunk = shrunk.job, set(), None
                if job.number is not None:
                    return job, made
            time.sleep(PAUSE_S)

    def _is_called(self) -> bool:
        """Whether members are shrinking the job."""
        from ..support.native import MPI

        try:
            return self.mpi.Iprobe(MPI.ANY_SOURCE, tag_of_survivors())
        except MPI.Exception:  # a rank has died; if it is a member, the others will call
            self.failed()
            return False

    def _receive_ends(self, gone: set[int]) -> None:
        """Add the members that have ended to `gone`."""
        from ..support.native import MPI

        status = MPI.Status()
        with contextlib.suppress(MPI.Exception):  # a rank has died
            while self.mpi.Iprobe(MPI.ANY_SOURCE, _end_tag(), status):
                self.mpi.Recv([bytearray(), MPI.BYTE], status.source, _end_tag())
                gone.add(status.source)


class Starter:
    """Starts the new processes of a job, on its lowest rank."""

    def __init__(self) -> None:
        self._started = Counter[int]()  # processes for each number, since it was last a member's
        self._starting: Starting | None = None

    def note_installed(self, job: Job, lost: set[int]) -> None:
        """Reset the counts of starts: all counts after a death, otherwise the members'. Start background processes."""
        for number in range(job.size) if lost else job.members:
            del self._started[number]
        if job.respawn == "background" and job.is_lowest and self._starting is None:
            self._start(job)

    def next_for(self, job: Job) -> list[int]:
        """Return the vacant numbers that new processes take now."""
        if job.respawn != "background":
            self._start(job)
        elif not self.have_come(job):
            return []
        return [] if self._starting is None else job.vacant[: self._starting.count]

    def have_come(self, job: Job) -> bool:
        """Whether processes that were started in the background wait to join. If one has failed, start new ones."""
        if self._starting is not None and self._starting.has_failed:
            self.end()
            self._start(job)
        return self._starting is not None and self._starting.have_come

    def _start(self, job: Job) -> None:
        """Start a process for each vacant number that has had fewer than ATTEMPTS starts."""
        wanted = [number for number in job.vacant if self._started[number] < ATTEMPTS]
        self._started.update(wanted)
        self._starting = Starting(len(wanted), behind=job.respawn == "background") if wanted else None

    def take(self) -> Starting | None:
        """Return the processes that join now; None if there are none."""
        starting, self._starting = self._starting, None
        return starting

    def end(self) -> None:
        """End the processes that are starting or wait to join."""
        starting = self.take()
        if starting is not None:
            starting.end()


class ShrunkCommunicator:
    """A communicator whose engine has stopped, for `Shrinking`. Survivors still read its shared memory.

    Attributes
    ----------
    survivors
        The numbers of the ranks that survived, ascending; set by `run`.
    """

    def __init__(self, comm: Communicator, numbers: Sequence[int], words: Words) -> None:
        self._comm = comm
        self._engine, self._engines, self._arguments = comm._engine, comm._engines, comm._arguments
        self.rank = self._engine.rank
        self.size = self._engine.size
        self.name = comm.name
        self.survivors: tuple[int, ...] = ()
        self._numbers = numbers  # of the ranks, as members
        self._shrinking = Shrinking(self, numbers, words)

    def run(self, deadline: Deadline) -> Communicator:
        new = self._shrinking.run(deadline)
        self.survivors = tuple(self._numbers[rank] for rank in self._shrinking.members)
        return new

    def abort(self) -> None:
        """Do nothing."""

    def _made_within(self, comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...]) -> Communicator:
        return self._comm._made_within(comm, limit, arguments)


class ShrunkJob:
    """A job in which a rank has died, for `Shrinking`.

    Attributes
    ----------
    job
        The job. `run` replaces it with a job without the dead ranks.
    survivors
        The numbers of the members that survived, ascending; set by `run`.
    """

    def __init__(
        self,
        job: Job,
        arguments: tuple[Any, ...],
        made_within: MadeWithin,
        # the rest is a member's, from the stopped communicator
        words: Words | None = None,
        engines: list[_core.Engine] | None = None,
        starter: Starter | None = None,
    ) -> None:
        self.job = job
        self.name = name = job.mpi.Get_name()
        self.rank, self.size = job.mpi.rank, job.mpi.size
        self.survivors: tuple[int, ...] = ()
        self._engine: Any = self
        self._engines = engines or []
        self._arguments = arguments
        self._make = made_within
        self._next = job
        self._starter = Starter() if starter is None else starter
        self._deadline = Deadline(0)
        pairs = zip(job.numbers, job.originals, strict=True)
        named = [original if number is None else number for number, original in pairs]
        waiting = Words(
            f"{name}: a rank died, and the others continue", "made a call on it", "This spare waits for them"
        )
        self._shrinking = Shrinking(self, named, words or waiting)

    def run(self, deadline: Deadline) -> Any:
        """Return the communicator of the new members; on a spare that still waits, a placeholder."""
        self._deadline = deadline
        try:
            made = self._shrinking.run(deadline)
        finally:
            if self._shrinking.is_over and self.job is not self._next:  # also if an interrupt is raised
                former = [self.job.numbers[rank] for rank in self._shrinking.members]
                self.survivors = tuple(sorted(number for number in former if number is not None))
                self.job = self._next
        return made

    def look_for_deaths(self) -> set[int]:
        return self._shrinking.look_for_deaths()

    # methods that `Shrinking` calls

    def mpi_duplicate(self) -> MPI.Comm:
        """Return the communicator for messages between the live ranks."""
        return self.job.mpi

    def acknowledge_failed(self) -> list[int]:
        return self.job.failed()

    def check_usable(self) -> None:
        """Raise RankFailedError if the engine knows of dead members."""
        try:
            for engine in self._engines:
                engine.check_usable()
        except RankFailedError as error:
            numbers = [self.job.members[place] for place in error.ranks]
            raise RankFailedError(str(error), [self.job.numbers.index(number) for number in numbers]) from error

    def abort(self) -> None:
        """Do nothing."""

    def _made_within(self, comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...]) -> Any:
        self._next = self.job.after(cast("MPI.Intracomm", comm), self._shrinking.members)
        made = [comm]
        try:
            began = time.monotonic()
            try:
                self._next = self._next.with_new_processes(self._starter)
            finally:
                self._deadline.extend(time.monotonic() - began)  # new processes have their own limit
            made.append(self._next.mpi)
            members = self._next.make_members()
            if members:
                made.append(members)
            self._next.mpi.Barrier()  # fails if a rank could not make `members` and has revoked this
            return self._make(members, limit, arguments) if members else _Waiting()
        except BaseException as error:
            for each in made:
                each.Revoke()  # other ranks may wait for this one in MPI collectives
            if isinstance(error, Exception) and self._next.mpi is not comm:  # a new process may differ from the others
                raise RankFailedError(f"new processes: {error}") from error
            raise


class _Waiting:
    """The placeholder for a communicator, on a spare that still waits."""

    def __init__(self) -> None:
        self._engines: list[_core.Engine] = []

    def abort(self) -> None:
        """Do nothing."""


def _end_tag() -> int:
    return tag_of_survivors() - 1
