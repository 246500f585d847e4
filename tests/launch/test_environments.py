"""Ways of starting: thread level, progress, traces, and launchers of another MPI."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from launcher import PROGRAMS, environment, mpirun, run

ROOT = Path(__file__).parents[2]


def test_a_thread_level_that_is_too_low():
    """Refused by name, with what to do; progress="caller" does."""
    outcome = mpirun(2, "thread_level.py")
    assert outcome.status == 0
    for rank in range(2):
        refused, total = outcome.said(rank)
        assert "expected MPI initialized with MPI_THREAD_MULTIPLE" in refused
        assert "got MPI_THREAD_FUNNELED" in refused
        assert total == "sum 2.0"


def test_progress_by_the_caller_from_the_environment():
    outcome = mpirun(3, "by_caller.py", PYC_PROGRESS="caller")
    assert outcome.status == 0
    for rank in range(3):
        assert outcome.said(rank) == ["progress caller threads 0", "total 15 threads 1"]


def test_a_bad_setting_is_an_error_on_every_rank():
    outcome = mpirun(2, "by_caller.py", PYC_PROGRESS="magic")
    assert outcome.status != 0
    assert "environment variable PYC_PROGRESS: expected 'thread' or 'caller', got 'magic'" in outcome.err


def test_traces_are_written_and_merged(tmp_path):
    """One Chrome trace per rank, of operations with a begin and a duration; one file of all ranks."""
    outcome = mpirun(3, "traced.py", "ring", PYC_TRACE=str(tmp_path / "run.json"))
    assert outcome.status == 0
    files = [tmp_path / f"run.rank{rank}.json" for rank in range(3)]
    for rank, path in enumerate(files):
        events = json.loads(path.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        assert {event["pid"] for event in events} == {rank}
        assert {event["args"].get("round") for event in spans} >= {0, 1, 2}
        assert all(event["dur"] >= 0 and event["ts"] > 0 for event in spans)
        assert any("send" in event["name"] for event in spans), {event["name"] for event in spans}
    merged = tmp_path / "all.json"
    command = [sys.executable, "-m", "pycollectives", "trace", "merge", *map(str, files), "-o", str(merged)]
    outcome = run(command)
    assert outcome.status == 0
    assert {event["pid"] for event in json.loads(merged.read_text())["traceEvents"]} == {0, 1, 2}


def test_what_ranks_do_in_shared_memory_is_traced(tmp_path):
    """Each rank contributes in each of three rounds; each round is reduced and completed by somebody, once."""
    outcome = mpirun(3, "traced.py", PYC_TRACE=str(tmp_path / "run.json"))
    assert outcome.status == 0
    files = [tmp_path / f"run.rank{rank}.json" for rank in range(3)]
    spans = [event for path in files for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    rounds = {
        name: [event["args"].get("round") for event in spans if event["name"] == name]
        for name in ("contribute", "reduce", "round", "wait")
    }
    assert Counter(rounds["contribute"]) >= Counter([0, 1, 2] * 3)
    assert set(rounds["reduce"]) >= {0, 1, 2}
    assert len(rounds["round"]) == len(set(rounds["round"])) >= 3
    assert set(rounds["wait"]) >= {0, 1, 2}, "of three ranks at least one waits for the last to come"
    picture = tmp_path / "run.png"
    outcome = run([sys.executable, "-m", "pycollectives", "trace", "draw", *map(str, files), "-o", str(picture)])
    assert outcome.status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_ranks_compute_and_wait_for_under_hop_is_traced(tmp_path):
    """What is waited for is named as in a StallError: the neighbors, and the update or token of which iteration."""
    outcome = mpirun(3, "traced_hop.py", PYC_TRACE=str(tmp_path / "run.json"))
    assert outcome.status == 0
    for rank in range(3):
        events = json.loads((tmp_path / f"run.rank{rank}.json").read_text())["traceEvents"]
        computing = [event for event in events if event["name"] == "compute"]
        assert [event["args"]["round"] for event in computing] == [0, 1, 2]
        assert all(event["dur"] >= 2000 for event in computing), "each iteration sleeps for 2 ms"
        waits = [event for event in events if event["name"] == "wait" and event["tid"] == computing[0]["tid"]]
        for event in waits:
            assert re.fullmatch(
                r"(the update of|a token for) iteration [0-3] of ranks? [0-2](, [0-2])?", event["args"]["for"]
            )
        if rank == 0:  # rank 1 may be late too
            last = computing[-1]["ts"] + computing[-1]["dur"]
            stalled = next(event for event in waits if event["ts"] >= last)
            assert re.fullmatch(r"the update of iteration 2 of rank(s 1,)? 2", stalled["args"]["for"])
            assert stalled["dur"] >= 100_000


def test_without_the_variable_no_trace_is_written(tmp_path):
    outcome = mpirun(2, "traced.py", TMPDIR=str(tmp_path))
    assert outcome.status == 0
    assert not list(tmp_path.rglob("*.json"))


def test_a_program_started_by_the_wrong_launcher_says_so():
    """A launcher of another MPI starts singletons; whatever is launched for n ranks checks their number."""
    singleton = [sys.executable, str(PROGRAMS / "traced.py"), "2"]
    outcome = run(["sh", "-c", '"$@" & "$@"; status=$?; wait; exit $status', "two", *singleton])
    assert outcome.status == 1
    assert outcome.err.count("started for 2 ranks, but MPI.COMM_WORLD has 1") == 2


def test_the_tests_themselves_refuse_the_wrong_launcher():
    command = [sys.executable, "-m", "pytest", "--with-mpi", "-p", "no:cacheprovider", str(ROOT / "tests/mpi")]
    outcome = run(command, env=environment(PYC_TEST_RANKS="2"))
    assert outcome.status != 0
    assert "2 ranks were launched but MPI.COMM_WORLD has 1" in outcome.out + outcome.err
