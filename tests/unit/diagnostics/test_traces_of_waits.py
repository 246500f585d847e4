"""What a trace says of a call that waits: for what, once for each wait."""

import itertools
import json
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
ONE = np.ones(1)


@pytest.fixture
def waits_of(tmp_path, monkeypatch):
    """Ranks of communicators that are made now write traces; a function reads the waits of one."""
    monkeypatch.setenv("PYC_TRACE", str(tmp_path / "run.json"))

    def read(rank):
        (path,) = tmp_path.glob(f"run.rank{rank}.*json")
        return [event for event in json.loads(path.read_text())["traceEvents"] if event["name"] == "wait"]

    return read


def wait_until_it_waits(comm, what):
    end = time.monotonic() + LIMIT
    while not any(what in c["wait"]["for"] for c in comm.flight_record()["collectives"] if "wait" in c):
        assert time.monotonic() < end
        time.sleep(1e-3)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize(
    ("mode", "what"),
    [
        (pc.hop.BoundedStaleness(1), "the update of iteration 1 of rank 1"),
        (pc.hop.BackupWorkers(1), "a token for iteration 3 of rank 1"),
    ],
    ids=repr,
)
def test_hop(waits_of, mode, what, ranks_per_node):
    """Rank 1 is in iteration 0 until rank 0 waits for it."""
    comms = loopback(2, ranks_per_node=ranks_per_node)

    def program(comm):
        hop = comm.hop(ONE, topology="ring", mode=mode, max_ig=2)
        for k in hop.iterations(4, timeout=LIMIT):
            if (comm.rank, k) == (1, 0):
                wait_until_it_waits(comms[0], what)
            hop.step(ONE, timeout=LIMIT)

    run_ranks(comms, program)
    assert [wait["args"]["for"] for wait in waits_of(0)].count(what) == 1


@pytest.mark.parametrize("servers", ["node", [2]], ids=str)
def test_a_pull_of_a_parameter_server(waits_of, servers):
    """Under BSP, rank 0 waits for the push of rank 1."""
    comms = loopback(3)

    def program(comm):
        ps = comm.parameter_server(ONE, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), servers=servers)
        if comm.rank not in ps.workers:
            return
        if comm.rank == 1:
            wait_until_it_waits(comms[0], "pull after push 1")
        ps.push(ONE)
        ps.pull(np.zeros(1), timeout=LIMIT)

    run_ranks(comms, program)
    of_server = [wait for wait in waits_of(0) if wait["tid"] > 0]
    said = [wait["args"]["for"] for wait in of_server]
    assert said[0] == "pull after push 1"
    assert {text.split()[0] for text in said} <= {"pull", "statistics"}, (
        "then for another rank's work, and as it closes"
    )
    assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in itertools.pairwise(of_server))


def test_text_is_json_and_not_longer_than_it_need_be(waits_of):
    """It has the name of a collective whose memory is made: of any characters, and long."""
    name = '"\\' + 198 * "ü"
    run_ranks(2, lambda comm: comm.hop(ONE, topology="ring", name=name).leave())
    for said in (wait["args"]["for"] for wait in waits_of(0) if "ü" in wait["args"]["for"]):
        assert said.startswith("the memory of '\"\\ü")
        assert said.endswith("ü...")
        assert 200 < len(said.encode()) <= 203
        break
    else:
        pytest.fail("no wait for that memory")
