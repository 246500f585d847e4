"""New processes for dead ranks, with a played MPI; real ones start in launch/test_respawn.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from pycollectives.membership import job as jobs
from pycollectives.membership import respawning
from pycollectives.membership.job import ATTEMPTS, Job, Starter
from pycollectives.membership.respawning import Starting
from pycollectives.support import native
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import MismatchError, RankFailedError


class Played:
    """A played MPI communicator; this is its rank 0."""

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
    """For each start: the communicator, the number of new processes, and their description."""
    made = []

    def connect(mpi, starting, description):
        made.append((Played(), starting.count, description))
        return made[-1][0]

    monkeypatch.setattr(respawning, "connect", connect)
    monkeypatch.setattr(Job, "failed", lambda job: [])
    return made


def test_new_processes_take_the_numbers_that_no_spare_has(started):
    job = Job(Played(), (0, 3, 2), (0, 3, 4), 5, 7, (2,), respawn=True)
    new = job.with_new_processes(Starter())
    ((mpi, count, told),) = started
    assert count == 2
    assert new == Job(mpi, (0, 3, 2, 1, 4), (0, 3, 4, 1, 4), 5, 7, (1, 2, 4), respawn=True)
    assert told == ("the job", new.numbers, new.originals, 5, 7, (1, 2, 4), True)


@pytest.mark.parametrize(
    ("numbers", "respawn"),
    [((0, 1, 2), True), ((0, 2), False), ((None,), True)],
    ids=["no rank is missing", "ranks are not replaced", "no survivor"],
)
def test_no_process_is_started_in_vain(started, numbers, respawn):
    job = Job(Played(), numbers, tuple(range(len(numbers))), 3, respawn=respawn)
    assert job.with_new_processes(Starter()) is job
    assert started == []


def test_processes_that_do_not_join_are_not_started_for_ever(started):
    """Each attempt begins with the job of the survivors, since the new process has died."""
    job, starter = Job(Played(), (0, 2), (0, 2), 3, respawn=True), Starter()
    for _ in range(ATTEMPTS):
        assert job.with_new_processes(starter).members == (0, 1, 2)
    assert job.with_new_processes(starter) is job
    assert len(started) == ATTEMPTS
    starter.note_installed(job, lost=set())
    assert job.with_new_processes(starter) is job
    starter.note_installed(job, lost={2})
    assert job.with_new_processes(starter) is not job


def test_a_death_before_the_start_is_an_error(started, monkeypatch):
    """What was received may be wrong then."""
    monkeypatch.setattr(Job, "failed", lambda job: [1])
    with pytest.raises(RankFailedError):
        Job(Played(), (0, 2), (0, 2), 3, respawn=True).with_new_processes(Starter())
    assert started == []


class NewProcesses:
    """An intercommunicator with new processes; each announces itself by 1, or its end by 0.

    `silent`: those that end before they are asked whether they are still there.
    """

    def __init__(self, *announced, count=2, silent=()):
        self.announced, self.told, self.silent = [*announced], [], silent
        self.Get_remote_size, self.Free = lambda: count, lambda: None

    def Iprobe(self, *_):  # noqa: N802
        return bool(self.announced)

    def Recv(self, buffer, *_):  # noqa: N802
        buffer[0][0] = self.announced.pop(0)

    def send(self, told, rank, _):
        if told != "ask":
            self.told.append((rank, told))
        elif rank not in self.silent:
            self.announced.append(1)


class Revocable(Played):
    """A communicator that notes whether it was revoked."""

    def __init__(self):
        super().__init__()
        self.revoked = False
        self.Barrier = lambda: None

    def Revoke(self):  # noqa: N802
        self.revoked = True


@pytest.fixture
def survivors():
    """The lowest of them; the others are there at once."""
    played = Played()
    played.Ibarrier = lambda: SimpleNamespace(Test=lambda: True)
    played.Is_revoked, played.Barrier = lambda: False, lambda: None
    return played


def start_with(new, survivors, monkeypatch):
    monkeypatch.setattr(respawning, "_spawned", lambda count: new)
    monkeypatch.setattr(respawning, "_connected", lambda starting, told, meet, is_new: starting.tell(told) or "all")
    return respawning.connect(survivors, Starting(2, behind=False), "description")


def test_processes_that_have_come_are_told_where_to_connect(monkeypatch, survivors):
    new = NewProcesses(1, 1)
    assert start_with(new, survivors, monkeypatch) == "all"
    (port,) = survivors.sent
    assert new.told == [(0, (port, "description")), (1, (port, "description"))]


@pytest.mark.parametrize(
    ("announced", "silent"),
    [([1, 0], ()), ([1], ()), ([1, 1], (0,))],
    ids=["one has ended", "one says nothing", "one has ended since"],
)
def test_survivors_do_not_wait_for_processes_that_have_ended(monkeypatch, survivors, announced, silent):
    """Nor does a process that waits for another."""
    monkeypatch.setattr(respawning, "START_S", 0.1)
    monkeypatch.setattr(respawning, "ANSWER_S", 0.1)
    new = NewProcesses(*announced, silent=silent)
    assert start_with(new, survivors, monkeypatch) is None
    assert new.told == [(0, None), (1, None)]
    assert survivors.sent == [None]  # the other survivors receive it


def test_survivors_that_have_given_up_do_not_wait(monkeypatch, survivors):
    survivors.Is_revoked = lambda: True
    new = NewProcesses()
    begin = time.monotonic()
    assert start_with(new, survivors, monkeypatch) is None
    assert time.monotonic() - begin < respawning.START_S / 2
    assert new.told == [(0, None), (1, None)]


@pytest.mark.parametrize("call", ["Ibarrier", "bcast", "Barrier"])
def test_a_death_is_told_to_new_processes(monkeypatch, survivors, call):
    def fails(*_):
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    setattr(survivors, call, fails)
    new = NewProcesses(1, 1)
    with pytest.raises(MPI.Exception):
        start_with(new, survivors, monkeypatch)
    assert new.told == [(0, None), (1, None)]


def test_an_interrupt_after_they_have_merged_leaves_nobody_waiting(monkeypatch, survivors):
    merged = Revocable()

    def connected(*_, **__):
        signal.raise_signal(signal.SIGINT)
        return merged

    monkeypatch.setattr(respawning, "_spawned", lambda count: NewProcesses(1, 1))
    monkeypatch.setattr(respawning, "_connected", connected)
    with pytest.raises(KeyboardInterrupt):
        respawning.connect(survivors, Starting(2, behind=False), "description")
    assert merged.revoked


# --- In the background


@pytest.fixture
def new(monkeypatch):
    """Two processes, which a thread starts; they announce themselves when a test says so."""
    new = NewProcesses()
    monkeypatch.setattr(respawning, "_spawned", lambda count: new)
    monkeypatch.setattr(respawning, "_connected", lambda starting, told, meet, is_new: starting.tell(told) or "all")
    return new


BACKGROUND = Job(Played(), (0, 3), (0, 3), 4, respawn="background")


def until(condition):
    limit = Deadline(10)
    while not condition():
        assert not limit.passed
        time.sleep(1e-3)


def test_the_survivors_continue_until_processes_in_the_background_have_come(new, survivors, monkeypatch):
    monkeypatch.setattr(Job, "failed", lambda job: [])
    starter = Starter()
    starter.note_installed(BACKGROUND, lost={1, 2})
    assert not starter.have_come(BACKGROUND)
    assert starter.next_for(BACKGROUND) == []
    new.announced += [1, 1]
    until(lambda: starter.have_come(BACKGROUND))
    assert starter.next_for(BACKGROUND) == [1, 2]
    assert respawning.connect(survivors, starter.take(), "description") == "all"
    (port,) = survivors.sent
    assert new.told == [(0, (port, "description")), (1, (port, "description"))]
    assert not starter.have_come(BACKGROUND)


def test_only_the_lowest_rank_starts_processes(new):
    job = Job(SimpleNamespace(rank=1), (0, 3), (0, 3), 4, respawn="background")
    starter = Starter()
    starter.note_installed(job, lost={1, 2})
    assert starter.take() is None


def test_processes_that_end_in_the_background_are_started_again(new):
    starter = Starter()
    starter.note_installed(BACKGROUND, lost={1, 2})
    for attempt in range(ATTEMPTS):
        assert starter._starting is not None, attempt
        new.announced.append(0)
        until(lambda: starter._starting.has_failed)
        assert not starter.have_come(BACKGROUND)
    assert starter.take() is None
    assert new.told == [(0, None), (1, None)] * ATTEMPTS


def test_processes_that_wait_are_kept_alive(new, monkeypatch):
    """Each is asked from time to time, and ends if it is not (`test_the_alarm_of_a_new_process_...`)."""
    monkeypatch.setattr(respawning, "KEEP_ALIVE_S", 0.01)
    monkeypatch.setattr(respawning, "ANSWER_S", 0.1)
    new.announced += [1, 1]
    starting = Starting(2, behind=True)
    until(lambda: starting.have_come)
    time.sleep(0.3)
    assert starting.have_come
    new.silent = (1,)
    until(lambda: starting.has_failed)
    assert not starting.have_come


def test_the_end_of_the_job_ends_processes_that_start(new):
    starter = Starter()
    starter.note_installed(BACKGROUND, lost={1, 2})
    starter.end()
    assert new.told == [(0, None), (1, None)]
    assert not [thread for thread in threading.enumerate() if thread.name == respawning.THREAD]


@pytest.mark.parametrize("error", [MPI.Exception(MPI.ERR_SPAWN), ValueError("MPI_ERR_SPAWN")], ids=str)
def test_the_survivors_continue_if_mpi_starts_nothing(monkeypatch, survivors, capsys, error):
    def spawn(*_):
        raise error

    played = {name: getattr(MPI, name) for name in ("Exception", "Open_port")}
    monkeypatch.setattr(native, "MPI", SimpleNamespace(COMM_SELF=SimpleNamespace(Spawn=spawn), **played))
    assert respawning.connect(survivors, Starting(1, behind=False), "") is None
    assert "MPI cannot start a process; the others continue: MPI_ERR_SPAWN" in capsys.readouterr().err
    assert survivors.sent == [None]


def test_a_new_process_does_not_use_its_own_world(monkeypatch):
    respawning.check_world(MPI.COMM_WORLD)
    monkeypatch.setattr(respawning, "_was_new", True)
    respawning.check_world(MPI.COMM_SELF)
    with pytest.raises(RuntimeError, match=r"MPI\.COMM_WORLD contains no survivors"):
        respawning.check_world(MPI.COMM_WORLD)


def test_what_a_new_process_is_and_its_children_are_not():
    """A child that imports the package, or is forked, does not end itself as one that has not joined."""
    program = (
        "import os, sys, subprocess; from pycollectives.membership.respawning import is_respawned\n"
        "assert is_respawned() and 'PYC_RESPAWNED' not in os.environ\n"
        "os.fork() or os._exit(is_respawned())\n"
        "assert os.wait()[1] == 0\n"
        "subprocess.run([sys.executable, '-c', 'from pycollectives.membership.respawning import is_respawned as i; '\n"
        "                'assert not i()'], check=True)\n"
        "os._exit(0)\n"
    )
    command = [sys.executable, "-S", "-c", respawning.BEGIN, "60", ".", sys.executable, "-c", program]
    subprocess.run(command, check=True, timeout=60)


def test_a_child_that_inherits_the_variable_is_no_new_process():
    program = "from pycollectives.membership.respawning import is_respawned; assert not is_respawned()"
    environment = {**os.environ, "PYC_RESPAWNED": str(os.getpid())}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_the_alarm_of_a_new_process_outlives_the_start_of_its_program(tmp_path):
    """It ends a program that hangs, in the folder and with the variables of the others."""
    program = "import os, time; print(os.getcwd(), os.environ['OURS'], flush=True); time.sleep(60)"
    begin = [sys.executable, "-S", "-c", respawning.BEGIN, "1", str(tmp_path), sys.executable, "-c", program]
    environment = {**os.environ, "OURS": "it is"}
    job = subprocess.run(begin, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert job.stdout == f"{tmp_path} it is\n"
    assert job.returncode == -signal.SIGALRM


@pytest.mark.parametrize("fails", [False, True])
def test_a_start_does_not_count_against_the_limit_of_the_survivors(monkeypatch, fails):
    def with_new_processes(job, started):
        time.sleep(0.2)
        if fails:
            raise RankFailedError("another rank died")
        return job

    monkeypatch.setattr(Job, "with_new_processes", with_new_processes)
    monkeypatch.setattr(Job, "make_members", lambda job: None)
    shrinking = SimpleNamespace(members=(0,), is_over=False)
    shrinking.run = lambda deadline: shrunk_job._made_within(Revocable(), None, ())
    monkeypatch.setattr(jobs, "Shrinking", lambda *_: shrinking)
    shrunk_job = jobs.ShrunkJob(Job(Played(), (0, 1), (0, 1), 2, respawn=True), (), lambda *_: None)
    deadline = Deadline(0.1)
    with pytest.raises(RankFailedError) if fails else contextlib.nullcontext():
        shrunk_job.run(deadline)
    assert not deadline.passed


@pytest.mark.parametrize("has_new", [True, False])
def test_what_a_new_process_does_wrong_ends_no_survivor(monkeypatch, has_new):
    """With other options, all ranks get MismatchError. It counts as a death only where new processes take part."""
    merged, members, shrunk = Revocable(), Revocable(), Revocable()
    monkeypatch.setattr(Job, "make_members", lambda job: members)

    def with_new_processes(job, started):
        return Job(merged, (0, 1), (0, 1), 2, respawn=True) if has_new else job

    monkeypatch.setattr(Job, "with_new_processes", with_new_processes)

    def make(*_):
        raise MismatchError("ranks_per_node")

    job = Job(Played(), (0, 1), (0, 1), 2, respawn=True)
    shrinking = SimpleNamespace(members=(0,), is_over=False)
    shrinking.run = lambda deadline: shrunk_job._made_within(shrunk, None, ())
    monkeypatch.setattr(jobs, "Shrinking", lambda *_: shrinking)
    shrunk_job = jobs.ShrunkJob(job, (), make)
    with pytest.raises(RankFailedError if has_new else MismatchError, match="ranks_per_node"):
        shrunk_job.run(Deadline(10))
    assert (shrunk.revoked, members.revoked, merged.revoked) == (True, True, has_new)  # others may wait on them
