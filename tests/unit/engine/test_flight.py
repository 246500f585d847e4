"""The flight recorder: its ring, its states, what it says; and what is made of the records of several ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _testing
from pycollectives.diagnostics import flight
from pycollectives.testing import loopback, run_ranks

ONE = np.ones(1)
CALLED, STARTED, RUNNING, COMPLETED, GIVEN = range(5)


def recorder(size=4, rounds=8, **names):
    lone = _testing.FlightRecorder(size, rounds)
    for name, number in (names or {"gradients": 1}).items():
        lone.opened(number, name)
    return lone


def read(lone):
    return json.loads(lone.json())


# --- The recorder -----------------------------------------------------------------------------------------------------


def test_the_states_of_a_round():
    lone = recorder(size=4)
    for state, name in enumerate(["called", "started", "running", "completed"]):
        lone.note(1, 5, state, [0, 2, 3] if state == COMPLETED else [])
        assert read(lone)["rounds"][-1]["state"] == name
        lone.note(1, 5, STARTED)
        assert read(lone)["rounds"][-1]["state"] == max(name, "started", key=["called", "started", name].index)
    lone.note(1, 5, GIVEN)
    record = read(lone)
    (entry,) = record["rounds"]
    times = [entry.pop(f"{what}_s") for what in ("called", "started", "running", "completed", "given")]
    assert times == sorted(times)
    assert times[-1] <= record["clock_s"] <= times[0] + 5
    assert record["since_call_s"] == pytest.approx(record["clock_s"] - times[-1], abs=1e-5)
    assert entry == {
        "collective": 1,
        "name": "gradients",
        "round": 5,
        "state": "given",
        "initiator": 0,
        "contributor_count": 3,
        "contributors": [0, 2, 3],
    }
    assert (record["rank"], record["size"]) == (0, 4)
    assert record["collectives"][1:] == [
        {"collective": 1, "name": "gradients", "state": "open", "completed_rounds": 6},
    ]


def test_the_ring_keeps_the_newest_rounds_of_all_collectives():
    lone = recorder(rounds=8, a=1, b=2)
    for number in range(10):
        lone.note(1, number, COMPLETED, [1])
        lone.note(2, number, COMPLETED, [2])
    record = read(lone)
    expected = [(name, number) for number in range(6, 10) for name in "ab"]
    assert [(r["name"], r["round"]) for r in record["rounds"]] == expected
    lone.note(1, 5, GIVEN)  # its entry is another's now
    lone.note(1, 6, GIVEN)
    record = read(lone)
    assert [r["state"] for r in record["rounds"]] == ["given", *["completed"] * 7]
    assert record["recorded_rounds"] == 20


def test_more_ranks_than_the_bitmap_holds():
    lone = recorder(size=256)
    lone.note(1, 0, COMPLETED, [0, 63, 64, 255])
    assert read(lone)["rounds"][0]["contributors"] == [0, 63, 64, 255]
    lone = recorder(size=257)
    lone.note(1, 0, COMPLETED, [0, 256])
    (entry,) = read(lone)["rounds"]
    assert "contributors" not in entry
    assert entry["contributor_count"] == 2


def test_names_are_escaped():
    name = 'a "b"\\\n\t\x01é\u20ac\N{GRINNING FACE}'
    lone = recorder(**{name: 1})
    lone.note(1, 0, STARTED)
    record = read(lone)
    assert record["collectives"][1]["name"] == record["rounds"][0]["name"] == name


def test_a_wait():
    lone = recorder(a=1, b=2)

    def look():
        time.sleep(0.05)
        wait = read(lone)["collectives"][1]["wait"]
        assert wait.pop("waited_s") == pytest.approx(0.05, abs=0.04)
        assert wait == {"for": "round", "round": 3, "gave_up": False}

    lone.wait(1, "round", 3, look)
    assert all("wait" not in c for c in read(lone)["collectives"])


def test_a_wait_that_is_given_up_is_shown_until_the_next_call():
    lone = recorder(a=1, b=2)

    def give_up():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        lone.wait(1, "flush", None, give_up)
    time.sleep(0.05)
    wait = read(lone)["collectives"][1]["wait"]
    assert wait.pop("waited_s") < 0.04
    assert wait == {"for": "flush", "gave_up": True}
    lone.note(2, 0, CALLED)
    assert "wait" in read(lone)["collectives"][1]
    lone.note(1, 0, CALLED)
    assert "wait" not in read(lone)["collectives"][1]


def test_collectives_that_have_ended_are_forgotten_in_time():
    lone = recorder(**{str(number): number for number in range(1, 101)})
    lone.left(1)
    lone.left(100)
    assert [c["state"] for c in read(lone)["collectives"]][:3] == ["open", "closed", "open"]
    for number in range(1, 100):
        lone.ended(number)
    collectives = read(lone)["collectives"]
    assert len(collectives) == 66
    assert collectives[-1] == {"collective": 100, "name": "100", "state": "closed", "completed_rounds": 0}


def test_off():
    lone = recorder(rounds=0)
    lone.note(1, 0, COMPLETED, [0])
    lone.wait(1, "round", 0, lambda: None)
    record = read(lone)
    assert (record["rounds"], record["collectives"]) == ([], [])


def test_threads_record_while_another_dumps():
    lone = recorder(rounds=16, a=1, b=2)
    threads = [threading.Thread(target=lone.seconds_per_round, args=(number, 300_000)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rounds = read(lone)["rounds"]
        for name in "ab":
            numbers = [r["round"] for r in rounds if r["name"] == name]
            assert numbers == sorted(set(numbers))
    assert read(lone)["recorded_rounds"] == 600_000


# --- With engines -----------------------------------------------------------------------------------------------------


def rounds_of(comm):
    ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name="sum")
    for _ in range(3):
        ar.allreduce(ONE, timeout=30)
    record = comm.flight_record()
    ar.leave()
    return record, comm.flight_record()


@pytest.mark.parametrize("ranks_per_node", [1, 2, 3])
def test_the_record_of_a_communicator(ranks_per_node):
    found = run_ranks(loopback(3, ranks_per_node=ranks_per_node), rounds_of)
    for rank, (record, after) in enumerate(found):
        assert (record["rank"], record["size"]) == (rank, 3)
        assert record["group"] == found[0][0]["group"]
        assert [(r["round"], r["state"], r["contributors"]) for r in record["rounds"][:3]] == [
            (number, "given", [0, 1, 2]) for number in range(3)
        ]
        assert all(r["called_s"] <= r["given_s"] for r in record["rounds"][:3])
        is_agent = ranks_per_node < 3 and rank % ranks_per_node == 0
        assert ["running_s" in r for r in record["rounds"][:3]] == [is_agent] * 3
        assert after["collectives"][1]["state"] in ("closed", "ended")


def stall_of_a_flush():
    """Return the StallError of rank 0, whose fellow does not flush."""
    seen = threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Majority(seed=1), name="sum")
        if comm.rank != 0:
            seen.wait(30)
            return None
        try:
            with pytest.raises(pc.StallError) as caught:
                ar.flush(timeout=0.1)
        finally:
            seen.set()
        return caught.value

    return run_ranks(2, program)[0]


def waits(document):
    return [c["wait"]["for"] for r in document["communicators"] for c in r["collectives"] if "wait" in c]


def test_a_stall_error_has_the_record(monkeypatch):
    monkeypatch.delenv("PYC_DUMP_DIR", raising=False)
    error = stall_of_a_flush()
    assert "record" not in str(error)
    assert "flush" in waits(error.record)  # beside what other tests have left open
    assert pc.StallError("of another origin").record is None


def test_a_stall_error_names_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("PYC_DUMP_DIR", str(tmp_path))
    error = stall_of_a_flush()
    (path,) = tmp_path.iterdir()
    assert str(error).endswith(f"(flight record: {path})")
    assert json.loads(path.read_text()) == error.record
    assert "flush" in waits(error.record)  # beside what other tests have left open


def test_a_stall_error_whose_file_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("PYC_DUMP_DIR", str(tmp_path / "absent"))
    error = stall_of_a_flush()
    assert "(no flight record: cannot write " in str(error)
    assert "No such file" in str(error)
    assert "flush" in waits(error.record)  # beside what other tests have left open


# --- Processes --------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
import numpy as np
import pycollectives as pc
from pycollectives.diagnostics import flight
from pycollectives.testing import loopback
me = os.getpid()
def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
def catches():
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGUSR2 - 1) & 1)
"""


def run(program, folder, **env):
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("PYC_")}, **env}
    env["PYTHONPATH"] = str(Path(pc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-u", "-c", PROGRAM + program], capture_output=True, text=True, timeout=60, cwd=folder, env=env
    )
    assert done.returncode == 0, done
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.skipif("libtsan" in os.environ.get("LD_PRELOAD", ""), reason="TSan has no threads after a fork")
def test_a_fork_does_not_answer_until_it_has_a_communicator_of_its_own(tmp_path):
    program = """
comms = loopback(2)
print(me in flight.listening(), catches())
child = os.fork()
if child == 0:
    me = os.getpid()
    print(me in flight.listening(), catches(), "pyc-flight" in threads())
    try:
        comms[0].flight_record()
    except pc.ClosedError as error:
        print("ClosedError")
    own = loopback(3)
    print(me in flight.listening(), catches())
    documents, silent = flight.request([me])
    print([r["size"] for d in documents.values() for r in d["communicators"]], silent, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
documents, silent = flight.request([me])
print([r["size"] for d in documents.values() for r in d["communicators"]], silent)
for comm in comms: comm.abort()
"""
    said = run(program, tmp_path)
    child = ["False False False", "ClosedError", "True True", "[3, 3, 3] []"]
    assert sorted(said) == sorted(["True True", *child, "0", "[2, 2] []"])
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("env", [{"PYC_SIGUSR2": "0"}, {"PYC_FLIGHT_ROUNDS": "0"}])
def test_what_turns_the_signal_off(tmp_path, env):
    program = """
for comm in loopback(1): comm.abort()
print(me in flight.listening(), catches(), "pyc-flight" in threads())
documents, (error,) = flight.request([me])
print(error)
"""
    said, error = run(program, tmp_path, **env)
    assert said == "False False False"
    assert "would not answer SIGUSR2" in error
    assert "PYC_SIGUSR2=0 or PYC_FLIGHT_ROUNDS=0" in error


def test_a_handler_of_the_application_is_left_alone(tmp_path):
    program = """
calls = []
signal.signal(signal.SIGUSR2, lambda *_: calls.append(1))
for comm in loopback(1): comm.abort()
os.kill(me, signal.SIGUSR2)
time.sleep(0.2)
print(calls, me in flight.listening())
"""
    assert run(program, tmp_path) == ["[1] False"]
    assert not list(tmp_path.iterdir())


def test_many_signals_at_once(tmp_path):
    """The files are whole whenever one looks; nothing is left behind; the next signal is answered too."""
    program = """
comms = loopback(2)
for _ in range(200):
    os.kill(me, signal.SIGUSR2)
    for path in Path().glob("*.json"):
        json.loads(path.read_text())
print(len(flight.request([me])[0]), len(flight.request([me])[0]), len(os.listdir()))
for comm in comms: comm.abort()
"""
    assert run(program, tmp_path) == ["1 1 1"]


def test_the_name_of_the_file(tmp_path):
    program = """
comms = loopback(1)
flight.request([me])
print(me)
comms[0].abort()
"""
    (pid,) = run(program, tmp_path, SLURM_JOB_ID="123/4")
    assert os.listdir(tmp_path) == [f"pycollectives-123_4-rank0-{pid}.json"]


# --- The command ------------------------------------------------------------------------------------------------------


def dump(*arguments):
    command = [sys.executable, "-m", "pycollectives", "dump", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_mistakes_are_one_line():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid, message in (
        (ended.pid, f"there is no process {ended.pid} on this machine"),
        (os.getppid(), "would not answer SIGUSR2: it has no pycollectives communicator yet"),
    ):
        done = dump(pid)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_jobs_are_told_apart_by_slurm_or_by_who_started_them():
    def started(**env):
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, **env})

    processes = [started(SLURM_JOB_ID="7"), started(SLURM_JOB_ID="8"), started(SLURM_JOB_ID="7"), started()]
    try:
        time.sleep(0.3)  # until they have their own environment
        found = flight.jobs([process.pid for process in processes])
    finally:
        for process in processes:
            process.communicate(b"\n")
    pids = [process.pid for process in processes]
    assert found == {
        "SLURM job 7": [pids[0], pids[2]],
        "SLURM job 8": [pids[1]],
        f"started by process {os.getpid()}": [pids[3]],
    }


def test_one_bad_number_does_not_suppress_the_others(tmp_path):
    program = """
comms = loopback(1)
documents, (error,) = flight.request([2**22 + 1, me])
comms[0].close()
print(len(documents), error)
"""
    (said,) = run(program, tmp_path)
    assert said == f"1 there is no process {2**22 + 1} on this machine"


def test_a_process_without_a_handler_is_never_sent_the_signal():
    """It would end it."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        documents, (error,) = flight.request([other.pid])
        assert not documents
        assert "would not answer" in error
        time.sleep(0.1)
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


# --- Joining records --------------------------------------------------------------------------------------------------


def document(rank, size=8, *, wait=None, round_=None, completed=0, state="open", entry="called", group="g", own=None):
    collective = {"collective": 1, "name": "x", "state": state, "completed_rounds": completed}
    if wait is not None:
        collective["wait"] = {"for": wait, "waited_s": 2.5, "gave_up": False}
        if wait == "round":
            collective["wait"]["round"] = round_
    rounds = [] if round_ is None else [{"collective": 1, "round": round_, "state": entry, f"{entry}_s": 1.0}]
    itself = {"collective": 0, "name": "the communicator", "state": "open", "completed_rounds": 0}
    if own is not None:
        itself["wait"] = {"for": own, "waited_s": 7.0, "gave_up": True}
    record = {"rank": rank, "size": size, "group": group, "collectives": [itself, collective], "rounds": rounds}
    return {"pid": 100 + rank, "communicators": [record]}


def test_who_has_not_arrived():
    documents = [
        document(0, wait="round", round_=5, completed=5),
        document(1, completed=5),  # computes
        document(2, round_=5, completed=5, entry="started"),  # has heard of the round and not called
        document(3, completed=3, state="closed"),
        document(4, round_=6, completed=6),  # is further
        document(5, wait="flush", completed=5),
        document(0, 1, completed=2, group="h"),
    ]
    first, *others, alone = flight.rows(documents)
    assert (first.rank, first.pid, first.round, first.state) == (0, 100, 5, "called")
    assert first.waiting == "round 5, for 2.5 s"
    assert first.not_arrived == (1, 2)
    assert first.unknown == (6, 7)
    assert [row.state for row in others] == ["no round yet", "started", "closed", "called", "no round yet"]
    assert others[4].waiting == "flush, for 2.5 s"
    assert others[4].not_arrived == (0, 1, 2, 4)
    assert (alone.group, alone.waiting, alone.not_arrived, alone.unknown) == ("h", "", (), ())


def test_waits_for_the_communicator_itself():
    documents = [document(0, 3, own="partial_allreduce"), document(1, 3, own="partial_allreduce"), document(2, 3)]
    found = {(row.rank, row.collective): row for row in flight.rows(documents)}
    assert len(found) == 5
    row = found[0, "the communicator"]
    assert (row.state, row.waiting) == ("waiting", "partial_allreduce, gave up after 7.0 s")
    assert row.not_arrived == (2,)
