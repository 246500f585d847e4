"""New processes for dead ranks, with a played MPI; real ones start in launch/test_respawn.py."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from pycollectives.membership import respawning
from pycollectives.membership.job import ATTEMPTS, Job
from pycollectives.support import native
from pycollectives.support.errors import RankFailedError


class Played:
    """An MPI communicator of which this is rank 0."""

    rank, size = 0, 4

    def __init__(self):
        self.sent = []
        self.Get_name, self.Set_name = lambda: "the job", lambda name: None

    def bcast(self, value):
        """Return the root's value."""
        self.sent.append(value)
        return value


@pytest.fixture
def started(monkeypatch):
    """The communicators with new processes, and how many of those each has."""
    made = []

    def start(mpi, count):
        made.append((Played(), count))
        return made[-1][0]

    monkeypatch.setattr(respawning, "start", start)
    monkeypatch.setattr(Job, "failed", lambda job: [])
    return made


def test_new_processes_take_the_numbers_that_no_spare_has(started):
    job = Job(Played(), (0, 3, 2), (0, 3, 4), 5, 7, (2,), respawn=True)
    new = job.with_new_processes(Counter())
    ((mpi, count),) = started
    assert count == 2
    assert new == Job(mpi, (0, 3, 2, 1, 4), (0, 3, 4, 1, 4), 5, 7, (1, 2, 4), respawn=True)
    (told,) = mpi.sent  # to the new processes
    assert told == ("the job", (new.numbers, new.originals, 5, 7, (1, 2, 4), True))


@pytest.mark.parametrize(
    ("numbers", "respawn"),
    [((0, 1, 2), True), ((0, 2), False), ((None,), True)],
    ids=["nobody is missing", "nobody is replaced", "no survivor"],
)
def test_no_process_is_started_in_vain(started, numbers, respawn):
    job = Job(Played(), numbers, tuple(range(len(numbers))), 3, respawn=respawn)
    assert job.with_new_processes(Counter()) is job
    assert started == []


def test_processes_that_do_not_join_are_not_started_for_ever(started):
    """Each attempt begins with the job of the survivors, since the new process has died."""
    job, counts = Job(Played(), (0, 2), (0, 2), 3, respawn=True), Counter()
    for _ in range(ATTEMPTS):
        assert job.with_new_processes(counts).members == (0, 1, 2)
    assert job.with_new_processes(counts) is job
    assert len(started) == ATTEMPTS


def test_a_death_before_the_start_is_an_error(started, monkeypatch):
    """What was received may be wrong then."""
    monkeypatch.setattr(Job, "failed", lambda job: [1])
    with pytest.raises(RankFailedError):
        Job(Played(), (0, 2), (0, 2), 3, respawn=True).with_new_processes(Counter())
    assert started == []


def test_the_survivors_continue_if_mpi_starts_nothing(monkeypatch):
    def spawn(*_):
        raise MPI.Exception(MPI.ERR_SPAWN)

    played = {name: getattr(MPI, name) for name in ("Info", "Exception")}
    monkeypatch.setattr(native, "MPI", SimpleNamespace(COMM_SELF=SimpleNamespace(Spawn=spawn), **played))
    survivors = Played()
    with pytest.warns(UserWarning, match="respawn: MPI starts no process, and the others continue: MPI_ERR_SPAWN"):
        assert respawning.start(survivors, 1) is None
    assert survivors.sent == [None]  # the others are told


@pytest.mark.parametrize("announced", [[1, 0], [1]], ids=["one has ended", "one says nothing"])
def test_survivors_do_not_wait_for_processes_that_have_ended(monkeypatch, announced):
    """Nor does a process that waits for another."""
    monkeypatch.setattr(respawning, "JOIN_S", 0.1)
    told = []

    def receive(buffer, *_):
        buffer[0][0] = announced.pop(0)

    new = SimpleNamespace(Get_remote_size=lambda: 2, Iprobe=lambda *_: bool(announced), Recv=receive)
    new.send = lambda port, rank, _: told.append((rank, port))
    monkeypatch.setattr(respawning, "_spawned", lambda count: new)
    assert respawning.start(Played(), 2) is None
    assert told == [(0, None), (1, None)]


def test_a_death_before_they_connect_is_told_to_new_processes(monkeypatch):
    told = []
    new = SimpleNamespace(Get_remote_size=lambda: 1, send=lambda port, rank, _: told.append(port))
    monkeypatch.setattr(respawning, "_spawned", lambda count: new)
    monkeypatch.setattr(respawning, "_all_are_there", lambda new: True)
    survivors = Played()

    def barrier():
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    survivors.Barrier = barrier
    with pytest.raises(MPI.Exception):
        respawning.start(survivors, 1)
    assert told == [None]


def test_a_new_process_does_not_use_its_own_world(monkeypatch):
    respawning.check_world(MPI.COMM_WORLD)
    monkeypatch.setenv(respawning.VARIABLE, "0")
    respawning.check_world(MPI.COMM_SELF)
    with pytest.raises(RuntimeError, match=r"MPI\.COMM_WORLD contains no survivors"):
        respawning.check_world(MPI.COMM_WORLD)


def test_a_process_is_new_until_it_has_merged(monkeypatch):
    assert not respawning.is_respawned()
    monkeypatch.setenv(respawning.VARIABLE, "1")
    assert respawning.is_respawned()
