"""What ranks of a training learn of each other in a barrier: ranks that one thread plays, one after the other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pycollectives.support.errors import RankFailedError
from pycollectives.train.control import ControlChannel


def communicator(rank, boxes, arrivals):
    """What `ControlChannel` uses of one of MPI; messages and arrivals are those of all ranks."""

    def send(message, to):
        boxes[to].append((rank, message.copy()))

    def receive(message, source, status):
        status.source, message[:] = boxes[rank].pop(0)

    def arrive():
        arrivals[rank] += 1
        number = arrivals[rank]
        return SimpleNamespace(Test=lambda: min(arrivals) >= number)

    made = SimpleNamespace(rank=rank, size=len(boxes), Isend=send, Recv=receive, Ibarrier=arrive)
    made.Iprobe = lambda source: bool(boxes[rank])
    made.Dup = lambda: made
    return made


def played(*advance):
    """The control channels of as many ranks; each calls its function while it waits."""
    boxes, arrivals = [[] for _ in advance], [0 for _ in advance]
    comms = [communicator(rank, boxes, arrivals) for rank in range(len(advance))]
    return [
        ControlChannel(SimpleNamespace(mpi_comm=comm, advance=one)) for comm, one in zip(comms, advance, strict=True)
    ]


def interrupted():
    raise KeyboardInterrupt


def waits():
    pytest.fail("waits for a rank that has left")


def fails_after_the_barrier(rank):
    with rank:
        rank.barrier()
        raise RuntimeError("just afterwards")


def test_a_rank_that_fails_in_a_barrier_tells_those_that_wait_there():
    """One that has been told as well does not come."""
    first, second, third = played(waits, interrupted, waits)
    with pytest.raises(KeyboardInterrupt), second:
        second.barrier()
    with pytest.raises(RankFailedError, match="rank 1 has left"), first:
        first.is_stopped()
    with pytest.raises(RankFailedError, match="rank 1 has left"), third:
        third.barrier()


def test_a_rank_that_fails_just_after_a_barrier_tells_those_that_are_still_there():
    """Else they would go on into a collective call that nothing ends."""

    def the_other_comes():
        with pytest.raises(RuntimeError, match="just afterwards"):
            fails_after_the_barrier(second)

    first, second = played(the_other_comes, waits)
    with pytest.raises(RankFailedError, match="rank 1 has left"), first:
        first.barrier()


@pytest.fixture
def soon(monkeypatch):
    """Warnings after a tenth of a second."""
    monkeypatch.setenv("PYC_STALL_WARNING", "0.1")
