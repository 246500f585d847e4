"""How a communicator opens: on a rank of the job, on a spare, and in a process that replaces a dead rank."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..agreement.deaths import naming_failed_ranks
from ..agreement.opening import engines_of
from ..agreement.options import Options, turn_on
from ..agreement.shrinking import MAKING_S
from ..at_exit import open_communicators
from ..selection.tables import is_tuned
from . import respawning
from .job import Job
from .members import Membership

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..agreement.options import Failures
    from ..communicator import Communicator

__all__ = ["open_communicator"]


def open_communicator(
    made: Communicator, comm: MPI.Comm, arguments: tuple[Any, ...], failures: Failures, limit: float | None
) -> None:
    """Open a communicator; collective. `limit` is the time limit in seconds; None for the limit in `arguments`."""
    if failures.respawn and respawning.is_respawned():
        _open_in_new_process(made, arguments)
        return
    respawning.check_world(comm)
    others_respawn = any(each._membership is not None and each._membership.respawns for each in open_communicators)
    failures = failures._replace(others_respawn=others_respawn)
    with turn_on(comm), naming_failed_ranks(comm):
        options, places = Options.agreed(comm, *arguments, is_tuned=is_tuned, failures=failures, limit=limit)
        with contextlib.ExitStack() as failing:
            job = Job.of(comm, failures.spares, failures.respawn) if failures.replaces else None
            if job is not None and job.number is not None:
                failing.callback(job.end)
            members = comm if job is None else job.make_members()
            if job is not None and job.number is None:
                _replace(made, *job.wait(arguments, made._made_within))
                return
            made._start(members, options.timeout, *engines_of(members, options, places[: members.size], limit))
            failing.pop_all()
    if failures.on_failure == "continue":
        made._membership = made._context.membership = Membership(made, made._context, job)


def _open_in_new_process(made: Communicator, arguments: tuple[Any, ...]) -> None:
    """Open the communicator together with the survivors, which wait for this process, or end the process."""
    try:
        job = Job.of_new_process()
        members = job.make_members()
        job.mpi.Barrier()
        new = made._made_within(members, MAKING_S, arguments)
    except BaseException as error:
        respawning.end_process("a process that was started to replace a dead rank", error)
    _replace(made, job, new)


def _replace(made: Communicator, job: Job, new: Communicator) -> None:
    """Take the place of a dead member, with the engine of `new`."""
    context = new._context
    made._start(new._comm, context.timeout, new._engine, None, context.nodes, context.costs)
    open_communicators.pop(new, None)
    made._rank, made._size = job.members[context.rank], job.size
    made._membership = made._context.membership = Membership(made, made._context, job)
    made._membership.join()
