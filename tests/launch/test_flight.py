"""The flight records of jobs: asked for by SIGUSR2 and by the command line, and those of StallErrors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import PROGRAMS, environment, launcher, run
from launcher import mpirun as run_ranks

from pycollectives.diagnostics import flight

PATHS = ["flat", "board"]


class Job:
    """Ranks of which rank 1 is in C and holds the GIL, and the others wait for it."""

    def __init__(self, folder, ranks, path, **env):
        self.folder = folder
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        program = [sys.executable, str(PROGRAMS / "hangs.py"), str(ranks), str(folder), path]
        self.process = subprocess.Popen(
            ["timeout", "--kill-after=5", "90", *launcher(), "-n", str(ranks), *program],
            cwd=folder,
            env=environment(PYTHONPATH=str(Path(flight.__file__).parents[2]), **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = time.monotonic() + 40
        ready = [folder / f"pid-{rank}" for rank in range(ranks)]
        while not all(path.exists() for path in ready):
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the ranks do not begin"
            time.sleep(0.05)
        time.sleep(0.5)  # for the ranks to wait
        self.pids = [int(path.read_text()) for path in ready]

    def end(self):
        """Let rank 1 go on; return what the ranks say."""
        self.gate.write_text("x")
        out, _ = self.process.communicate(timeout=90)
        assert self.process.returncode == 0, out
        return out


@contextlib.contextmanager
def job(*arguments, **env):
    running = Job(*arguments, **env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.communicate()


def dump(*arguments):
    return run([sys.executable, "-m", "pycollectives", "dump", *map(str, arguments)], limit=60)


@pytest.mark.parametrize("path", PATHS)
def test_a_rank_in_c_and_ranks_that_wait(tmp_path, path):
    """All answer; the records tell who waits for whom. The signal disturbs nobody: not even a read in progress."""
    with job(tmp_path, 3, path) as running:
        assert set(running.pids) <= set(flight.listening())
        outcome = dump("--json", *running.pids)
        assert outcome.status == 0
        processes = json.loads(outcome.out)["processes"]
        assert sorted(process["world_rank"] for process in processes) == [0, 1, 2]
        assert {process["reason"] for process in processes} == {"SIGUSR2"}
        files = sorted(found.name for found in tmp_path.glob("*.json"))
        assert len(files) == 3
        for rank, name in enumerate(files):
            assert re.fullmatch(rf"pycollectives-.*-rank{rank}-{running.pids[rank]}\.json", name)
        found = {row.rank: row for row in flight.rows(processes)}
        for rank in (0, 2):
            assert found[rank].collective == "gradients"
            assert (found[rank].round, found[rank].state) == (1, "running" if path == "flat" else "started")
            assert found[rank].waiting.startswith("round 1, for ")
            assert found[rank].not_arrived == (1,)
        # By messages its engine has heard of the round, and waits for it to contribute.
        assert (found[1].round, found[1].state) == ((1, "started") if path == "flat" else (0, "given"))
        assert found[1].waiting == ""

        outcome = dump(*running.pids)
        assert outcome.status == 0
        lines = [line for line in outcome.out.splitlines() if "gradients" in line]
        assert len(lines) == 3
        assert sum("round 1, for" in line for line in lines) == 2
        out = running.end()
    assert "rank 1: read 1" in out
    assert out.count("sum 3.0") == 3


def top(*arguments):
    return run([sys.executable, "-m", "pycollectives", "top", *map(str, arguments)], limit=60)


def test_top_shows_the_ranks_and_leaves_no_file(tmp_path):
    with job(tmp_path, 3, "flat") as running:
        once = top("--once", *running.pids)
        assert once.status == 0, once
        lines = [line for line in once.out.splitlines() if "gradients" in line]
        assert [line.split()[1] for line in lines] == ["0", "1", "2"]
        assert [str(pid) in line for pid, line in zip(running.pids, lines, strict=True)] == [True] * 3
        assert ["round" in line for line in lines] == [True, False, True], "rank 1 does not wait"
        assert not list(tmp_path.glob("*.json"))
        assert dump(*running.pids).status == 0
        assert top("--once", *running.pids).status == 0
        assert len(list(tmp_path.glob("*.json"))) == 3, "files that were there stay"
        begun = time.time()
        watching = subprocess.Popen(
            [sys.executable, "-m", "pycollectives", "top", "--interval", "0.2", *map(str, running.pids)],
            stdout=subprocess.PIPE,
            text=True,
        )
        while not all(path.stat().st_mtime > begun for path in tmp_path.glob("*.json")):
            assert watching.poll() is None
            time.sleep(0.1)
        time.sleep(1)
        assert watching.poll() is None
        running.end()
    out, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "gradients" in out
    gone = top("--once", *running.pids)
    assert gone.status == 1
    assert "there is no process" in gone.err


def test_the_launcher_passes_the_signal_on(tmp_path):
    """One kill for the whole job, on all its machines; the records go where PYC_DUMP_DIR says."""
    if "--oversubscribe" not in launcher():
        pytest.skip("of Open MPI's mpirun")
    records = tmp_path / "records"
    records.mkdir()
    with job(tmp_path, 2, "flat", PYC_DUMP_DIR=str(records)) as running:
        timeout = running.process.pid
        (mpirun,) = Path(f"/proc/{timeout}/task/{timeout}/children").read_text().split()
        os.kill(int(mpirun), signal.SIGUSR2)
        deadline = time.monotonic() + 20
        while len(list(records.glob("*.json"))) < 2:
            assert time.monotonic() < deadline, "no records"
            time.sleep(0.1)
        running.end()
    assert not list(tmp_path.glob("*.json"))


def test_a_stopped_process_is_named(tmp_path):
    """The others' records are shown all the same; the status is that of a failure."""
    with job(tmp_path, 2, "flat") as running:
        os.kill(running.pids[1], signal.SIGSTOP)
        outcome = dump("--timeout", 1, *running.pids)
        os.kill(running.pids[1], signal.SIGCONT)
        running.end()
    assert outcome.status == 1
    assert f"process {running.pids[1]} is stopped" in outcome.err
    assert "0; no record of 1" not in outcome.out
    assert re.search(r"round 1, for .* no record of 1", outcome.out)


def test_a_folder_that_cannot_be_written_to(tmp_path):
    """The process goes on and says why on stderr; the command says where it looked."""
    records = tmp_path / "records"
    records.mkdir()
    with job(tmp_path, 2, "flat", PYC_DUMP_DIR=str(records)) as running:
        records.rmdir()
        outcome = dump("--timeout", 1, *running.pids)
        out = running.end()
    assert outcome.status == 1
    assert f"wrote no record into {records} within 1 s" in outcome.err
    assert out.count(f"pycollectives: SIGUSR2: cannot write {records}/") == 2


@pytest.mark.parametrize("named", [True, False])
def test_a_stall_error_has_its_record_and_names_its_file(tmp_path, named):
    outcome = run_ranks(3, "stalls.py", **({"PYC_DUMP_DIR": str(tmp_path)} if named else {}))
    assert outcome.status == 0
    assert outcome.said(1) == []
    for rank in (0, 2):
        stall, record = outcome.said(rank)
        assert record == "record: round"
        match = re.search(r"have not arrived: rank 1.*?( \(flight record: (.*)\))?$", stall)
        assert match
        assert (match[1] is not None) == named
        if named:
            process = json.loads(Path(match[2]).read_text())
            assert (process["reason"], process["world_rank"]) == ("StallError", rank)
            wait = process["communicators"][0]["collectives"][1]["wait"]
            assert (wait["for"], wait["round"], wait["gave_up"]) == ("round", 0, True)
            assert 0.3 <= wait["waited_s"] < 5
    assert len(list(tmp_path.iterdir())) == 2 * named
