"""Ranks of a device board that are processes of an MPI job."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from device_ranks import Job, Member, end
from mpi4py import MPI
from oracle import LIMIT

from pycollectives.support.native import core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devices import Host

testing = core.testing
WORLD = MPI.COMM_WORLD


def new_member(machine: Host, job: Job, *, reads: int) -> Member:
    """Make this rank's part of a board. A message says what opens the control, the rest stands in it."""
    control = testing.DeviceBoardControl() if WORLD.rank == 0 else None
    handle = WORLD.bcast(control.handle if control else None)
    control = control or testing.DeviceBoardControl.open(handle)
    board = job.board(control, machine, WORLD.size, WORLD.rank)
    WORLD.Barrier()
    board.attach()
    WORLD.Barrier()
    return Member(machine, board, job, WORLD.rank, reads)


def drive(program: Iterator[None], member: Member) -> None:
    """Run a program; a rank that waits for its device lets others have its core, and else sleeps."""
    until = time.monotonic() + LIMIT
    rings = member.board.rings()
    for _ in program:
        assert time.monotonic() < until, "a hang"
        os.sched_yield()
        if not member.machine.step():
            member.board.sleep(rings, 0.0005)
        rings = member.board.rings()


def finish(member: Member) -> None:
    """Close while streams still work, and compare."""
    drive(end(member), member)
    member.machine.finish()
    member.check()
    member.free()
    member.machine.end()
