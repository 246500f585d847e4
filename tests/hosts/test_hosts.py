"""The hosts themselves: they share nothing but the network, and nothing of them is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launcher import environment
from on_hosts import HOSTS, IS_OPEN_MPI, ROOT, launched, on_hosts

AGENT = ROOT / "tools" / "hosts-agent"


@pytest.mark.parametrize("shape", ["2x3", "4x1"])
def test_the_ranks_of_a_host_are_a_node(shape, tmp_path):
    """The library finds out by itself. The launcher leaves no files, and all ranks are in one session."""
    job = launched(shape, Path(__file__).parent / "programs" / "nodes.py", TMPDIR=str(tmp_path))
    assert job.status == 0, job
    assert list(tmp_path.iterdir()) == []
    hosts, ranks = map(int, shape.split("x"))
    for rank in range(hosts * ranks):
        nodes = [other // ranks for other in range(hosts * ranks)]
        where, session = job.said(rank)
        assert where == f"node{rank // ranks + 1}, nodes {nodes}, ranks per node {ranks}", job
        assert session == "session 0" or not IS_OPEN_MPI, job  # that of the cluster: tools/hosts-agent says why


def test_hosts_share_no_memory_no_processes_and_no_name():
    of_host = "echo $(hostname) $(ls /dev/shm /run) $(readlink /proc/self/ns/ipc) $(ls -d /proc/[0-9]* | wc -w)"
    script = 'tools/hosts-agent node1 "touch /dev/shm/a /run/b"; for n in 1 2; do tools/hosts-agent node$n "$0"; done'
    job = on_hosts("2x1", "sh", "-c", script, of_host)
    assert job.status == 0, job
    first, second = job.out.splitlines()
    assert re.fullmatch(r"node1 /dev/shm: a /run: b ipc:\S+ \d", first), job
    assert re.fullmatch(r"node2 /dev/shm: /run: ipc:\S+ \d", second), job
    assert re.findall(r"ipc:\S+", first) != re.findall(r"ipc:\S+", second), job


def test_the_status_is_that_of_the_command():
    assert on_hosts("1x1", "sh", "-c", "exit 7").status == 7
    assert on_hosts("1x1", "sh", "-c", "kill $$").status == 143


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["2", "true"], "expected HOSTSxRANKS with at most 200 hosts, as 2x4, got '2'"),
        (["0x4", "true"], "expected HOSTSxRANKS"),
        (["2x4"], "expected options, HOSTSxRANKS and a command, in this order"),
        (["2x4", "--rate", "1mbit", "true"], "expected options, HOSTSxRANKS and a command, in this order"),
        (["--rate", "fast", "2x4", "true"], "expected a rate as 100mbit or node2:10mbit, got 'fast'"),
        (["--rate", "node3:1mbit", "2x4", "true"], "--rate: expected one of node1 node2, got node3"),
        (["1x1", "no-such-command"], "no-such-command"),
    ],
    ids=" ".join,
)
def test_mistakes_are_told_in_a_line(arguments, complaint):
    done = subprocess.run([HOSTS, *arguments], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode in (1, 2)
    assert complaint in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


# --- The end ----------------------------------------------------------------------------------------------------------


class Lasting:
    """A cluster whose command, and a process on a host, sleep for a time that nothing else on this machine does."""

    def __init__(self, *, traps: str) -> None:
        self.seconds = f"{1000 + os.getpid()}.{time.monotonic_ns()}"
        sleep = f"sleep {self.seconds}"
        script = f"trap '' {traps}; {AGENT} node2 {sleep} & echo up; while :; do {sleep}; done"
        command = [HOSTS, "2x1", "sh", "-c", script]
        env = environment()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env)
        assert self.process.stdout.readline() == "up\n"
        while len(self.processes()) < 2:
            time.sleep(0.01)

    def processes(self) -> list[str]:
        """Return what there is of it: all command lines that name the time."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(path.read_bytes().decode(errors="replace"))
            except OSError:  # it has just ended
                continue
        return [line for line in lines if self.seconds in line and line.startswith("sleep")]

    def ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.processes()


@pytest.mark.parametrize("how", ["ctrl-c", "terminated", "killed", "hangs"])
def test_nothing_is_left(how):
    """After Ctrl-C, which a terminal sends to all processes; after SIGTERM; and if the command does not end by them."""
    cluster = Lasting(traps="TERM INT" if how == "hangs" else "HUP")
    if how == "ctrl-c":
        os.killpg(cluster.process.pid, signal.SIGINT)
    else:
        cluster.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    cluster.process.wait(timeout=30)
    assert cluster.ends_within(5), cluster.processes()
    here = {path.name for folder in ("/sys/class/net", "/run") for path in Path(folder).iterdir()}
    assert here.isdisjoint({"bridge", "node1", "node2", "hosts", "addresses"}), here


def test_two_clusters_at_once():
    """They have the same names and addresses, and do not see each other."""
    mark = "touch /run/mine; sleep 0.5; ls /run | tr '\\n' ' '"
    commands = [[HOSTS, "2x1", AGENT, host, mark] for host in ("node1", "node2")]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    assert [job.communicate(timeout=30)[0] for job in jobs] == ["mine ", "mine "]


# --- Links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "sender", "mbits"),
    [(None, "node1", None), ("50mbit", "node1", 50), ("node2:50mbit", "node1", 50), ("node2:50mbit", "node2", 50)],
)
def test_links_are_limited(rate, sender, mbits):
    """Also if only the receiver's is."""
    program = Path(__file__).parent / "programs" / "bytes_per_second.py"
    receiver = {"node1": "node2", "node2": "node1"}[sender]
    script = f'{AGENT} {receiver} "$0 {program} receive" & {AGENT} {sender} "$0 {program} send {receiver}"'
    job = on_hosts("2x1", "sh", "-c", script, "python3", rate=rate)
    assert job.status == 0, job
    measured = 8e-6 * float(job.out)
    if mbits is None:
        assert measured > 200, job
    else:
        assert 0.3 * mbits < measured < 1.5 * mbits, job
