"""Runs of a partial allreduce on all ranks of MPI.COMM_WORLD, whose records are gathered and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrivals import play
from mpi4py import MPI
from oracle import Case, Recorder, RoundSeen, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrivals import Script

    import pycollectives as pc


def run_case(comm: pc.Communicator, case: Case, part: Callable[[Recorder], object]) -> dict[int, RoundSeen]:
    """Perform every rank's part on a new collective, flush, and check the promises; return the rounds."""
    with comm.partial_allreduce(**case.arguments) as ar:
        recorder = Recorder(comm.rank, ar, case)
        part(recorder)
        if not recorder.log.closed:
            recorder.flush()
    return check(case, MPI.COMM_WORLD.allgather(recorder.finished()))


def run_script(comm: pc.Communicator, script: Script, **arguments: Any) -> dict[int, RoundSeen]:
    """Make every rank's calls at the times of the arrival script: 8 calls, unless `arguments` has another number."""
    case = Case(size=comm.size, **{"calls": 8, **arguments})
    return run_case(comm, case, lambda recorder: play(script, recorder, case))
