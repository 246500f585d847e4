"""Hop: arguments that are refused, and neighbors that do not come, leave or are late; ranks as threads."""

import math
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from neighbor_oracle import SHAPES

import pycollectives as pc
from pycollectives import topology
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
ONE = np.ones(1)
MODES = [
    pc.hop.Standard(),
    pc.hop.NotifyAck(),
    pc.hop.BackupWorkers(1),
    pc.hop.BoundedStaleness(2),
    pc.hop.Hybrid(1, 2),
]


# --- Arguments


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"initial": np.zeros(2, np.int32)}, TypeError, "initial: expected elements of float16"),
        ({"topology": "circle"}, ValueError, "topology: expected"),
        ({"topology": topology.ring(4)}, ValueError, "topology: .* as many ranks as the communicator, 3"),
        ({"topology": pc.topology.Topology(3, [(0, 1)])}, ValueError, "there is no path|not connected|connected"),
        ({"topology": topology.from_matrix(np.full((3, 3), 1 / 3))}, ValueError, "expected a graph without weights"),
        ({"topology": "one-peer-exponential"}, TypeError, "topology: expected a graph that does not vary in time"),
        ({"max_ig": 0}, ValueError, "max_ig: expected"),
        ({"max_ig": 2.5}, TypeError, "max_ig: expected"),
        ({"mode": 1}, TypeError, r"mode: expected a mode such as Standard\(\), .*got 1"),
        ({"mode": "backups:1"}, ValueError, r"mode: expected standard, .*'backups:1'"),
        ({"mode": "skip:3", "skip": pc.hop.Skip(2)}, ValueError, r"skip: expected None, since mode='skip:3'"),
        ({"mode": pc.hop.BackupWorkers(3)}, ValueError, r"BackupWorkers\(n=3\): expected n <= 2, the number of in-n"),
        ({"mode": pc.hop.BackupWorkers([0, 0, 3])}, ValueError, r"n=\(0, 0, 3\)\): expected n <= 2, .* of rank 2 in"),
        ({"mode": pc.hop.BackupWorkers([1, 1])}, ValueError, r"expected 3 numbers, one for each rank, got 2"),
        ({"mode": pc.hop.Hybrid(3, 1)}, ValueError, r"Hybrid\(n=3, s=1\): expected n <= 2"),
        ({"skip": 3}, TypeError, r"skip: expected None or Skip\(max_jump, trigger\), got 3"),
        ({"skip": pc.hop.Skip(3)}, ValueError, r"skip: expected None under Standard\(\), in which no rank is"),
        ({"mode": pc.hop.NotifyAck(), "skip": pc.hop.Skip(3)}, ValueError, r"skip: expected None under NotifyAck\(\)"),
        ({"computation": "both"}, ValueError, "computation: expected"),
        ({"name": ""}, ValueError, "name"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_on_all_ranks_before_anything_is_made(arguments, kind, text):
    def program(comm):
        given = {"initial": ONE, "topology": "ring", **(arguments if comm.rank == 1 else {})}
        with pytest.raises(kind if comm.rank == 1 else pc.MismatchError, match=text if comm.rank == 1 else "rank 1"):
            comm.hop(**given)
        return comm.hop(ONE, topology="ring").closed

    assert run_ranks(3, program) == [False] * 3


def test_one_rank_needs_no_other_in_any_mode():
    def program(comm):
        ends = []
        for mode in [*MODES, "skip:10"]:
            with comm.hop(ONE, mode=mode) as hop:
                for _ in hop.iterations(3, timeout=LIMIT):
                    hop.step(ONE)
                ends.append(float(hop.parameters[0]))
        return ends

    assert run_ranks(1, program) == [[4.0] * (len(MODES) + 1)]


def test_a_mode_may_be_a_text():
    def program(comm):
        if comm.rank == 0:  # the same arguments, or ranks would not agree
            return comm.hop(ONE, topology="ring", mode="skip:3").closed
        return comm.hop(ONE, topology="ring", mode=pc.hop.BackupWorkers(1), skip=pc.hop.Skip(3)).closed

    assert run_ranks(3, program) == [False] * 3


@pytest.mark.parametrize("differing", [
    {"max_ig": 4}, {"mode": pc.hop.BackupWorkers(1)}, {"topology": "star"}, {"computation": "serial"},
    {"initial": np.zeros(2)}, {"mode": pc.hop.BackupWorkers(1), "skip": pc.hop.Skip(2)},
], ids=str)  # fmt: skip
def test_arguments_that_differ(differing):
    def program(comm):
        with pytest.raises(pc.MismatchError, match="rank 2"):
            comm.hop(**{"initial": ONE, "topology": "ring", **(differing if comm.rank == 2 else {})})

    run_ranks(3, program)


def test_arguments_of_calls():
    with loopback(1)[0] as comm:
        hop = comm.hop(np.ones(2), topology="ring")
        with pytest.raises(ValueError, match="steps: expected"):
            hop.iterations(-1)
        with pytest.raises(ValueError, match="steps: expected at most"):
            hop.iterations(2**63)
        with pytest.raises(TypeError, match="steps: expected"):
            hop.iterations("all")
        with pytest.raises(ValueError, match="timeout: expected"):
            hop.iterations(1, timeout=-1.0)
        assert list(hop.iterations(0)) == []
        for _ in hop.iterations(1, timeout=math.inf):
            with pytest.raises(BufferError):
                hop.step(np.zeros(4)[::2])
            hop.step(np.zeros(2))
        assert hop.statistics().iterations == 1


# --- Who has not come


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("computation", ["parallel", "serial"])
def test_a_stall_of_a_step_names_the_update_and_step_may_be_called_again(computation, ranks_per_node):
    """The delta is added once."""
    stalled = threading.Barrier(3)

    def program(comm):
        hop = comm.hop(np.full(1, float(comm.rank)), topology="complete", name="own", computation=computation)
        text = ""
        iterations = hop.iterations(4, timeout=LIMIT)
        for k in range(4):
            if k == 2 and comm.rank == 2:
                stalled.wait(LIMIT)
            assert next(iterations) == k
            if k == 2 and comm.rank != 2:
                with pytest.raises(pc.StallError) as caught:
                    hop.step(ONE, timeout=0.3)
                text = str(caught.value)
                stalled.wait(LIMIT)
            hop.step(ONE, timeout=LIMIT)
        return text, float(hop.parameters[0])

    outcome = run_ranks(3, program, ranks_per_node=ranks_per_node)
    for text, _ in outcome[:2]:
        assert text.startswith(
            "hop 'own', step of iteration 2 (waits for the update of iteration 2 of rank 2): not complete after "
        ), text
        assert "have not arrived: rank 2 (alive; last call" in text, text
    assert [result for _, result in outcome] == [pytest.approx(5.0)] * 3


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_of_an_iteration_names_the_token_and_a_new_loop_goes_on(ranks_per_node):
    """Rank 0 is as far ahead of its out-neighbor, which sleeps in iteration 0, as tokens allow."""
    stalled = threading.Event()

    def program(comm):
        hop = comm.hop(ONE, topology="ring", mode=pc.hop.BackupWorkers(1), max_ig=2, name="own")
        if comm.rank == 1:
            for k in hop.iterations(5, timeout=LIMIT):
                if k == 0:
                    assert stalled.wait(LIMIT)
                hop.step(ONE, timeout=LIMIT)
            return ""
        numbers = []
        with pytest.raises(pc.StallError) as caught:
            for k in hop.iterations(5, timeout=0.3):
                numbers.append(k)
                hop.step(ONE, timeout=LIMIT)
        stalled.set()
        for k in hop.iterations(2, timeout=LIMIT):
            numbers.append(k)
            hop.step(ONE, timeout=LIMIT)
        assert numbers == [0, 1, 2, 3, 4]
        return str(caught.value)

    text = run_ranks(2, program, ranks_per_node=ranks_per_node)[0]
    assert "hop 'own', the iteration after 2 (waits for a token for iteration 3 of rank 1)" in text
    assert "have not arrived: rank 1 (alive; last call" in text


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_another_thread_may_close_it_while_one_waits(ranks_per_node):
    """The call that waits ends at once, though its limit is far."""
    ended = threading.Event()

    def program(comm):
        hop = comm.hop(ONE, topology="ring", name="own")
        if comm.rank == 1:
            assert ended.wait(LIMIT)
            return
        next(hop.iterations(1, timeout=LIMIT))
        closing = threading.Timer(0.2, hop.close)
        closing.start()
        with pytest.raises(pc.ClosedError, match="'own' was closed meanwhile"):
            hop.step(ONE, timeout=LIMIT)
        closing.join()
        ended.set()

    run_ranks(2, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_stall_names_an_acknowledgement(ranks_per_node):
    """On a directed ring: rank 2 has reduced iteration 0, and its receiver has not."""
    stalled = threading.Event()

    def program(comm):
        graph = pc.topology.Topology(3, [(0, 1), (1, 2), (2, 0)])
        hop = comm.hop(ONE, topology=graph, mode=pc.hop.NotifyAck())
        for k in hop.iterations(1, timeout=LIMIT):
            if comm.rank == 0:
                assert stalled.wait(LIMIT), k
            hop.step(ONE, timeout=LIMIT)
        if comm.rank == 2:
            text = "waits for the acknowledgement of iteration 0 of rank 0.*have not arrived: rank 0 "
            with pytest.raises(pc.StallError, match=text):
                next(hop.iterations(1, timeout=0.3))
            stalled.set()

    run_ranks(3, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_says_where_the_neighbor_waits(ranks_per_node):
    """Two ranks in iterations of two different objects."""
    met = threading.Barrier(2)

    def program(comm):
        hops = [comm.hop(ONE, topology="ring", name=name) for name in "ab"]
        hop = hops[comm.rank]
        next(hop.iterations(1, timeout=LIMIT))
        met.wait(LIMIT)
        other = "'b': rank 1" if comm.rank == 0 else ""
        with pytest.raises(pc.StallError, match=rf"step of iteration 0 .*{other}"):
            hop.step(ONE, timeout=2 if comm.rank == 0 else 5)
        met.wait(LIMIT)

    run_ranks(2, program, ranks_per_node=ranks_per_node)


def test_what_is_waited_for_is_in_the_flight_record():
    finished = threading.Event()

    def program(comm):
        hop = comm.hop(ONE, topology="ring", name="own")
        if comm.rank == 1:
            assert finished.wait(LIMIT)
        next(hop.iterations(1))
        if comm.rank == 0:
            waits = threading.Thread(target=hop.step, args=(ONE,), kwargs={"timeout": LIMIT})
            waits.start()
            while "wait" not in comm.flight_record()["collectives"][-1]:
                time.sleep(0.01)
            record = comm.flight_record()["collectives"][-1]
            assert "the update of iteration 0 of rank 1" in str(record)
            with pytest.raises(RuntimeError, match="'own': called while another thread is in a call of it"):
                hop.step(ONE)
            finished.set()
            waits.join(LIMIT)
        else:
            hop.step(ONE, timeout=LIMIT)

    run_ranks(2, program)


# --- Ranks that leave


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("leave", ["close", "raise"])
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_a_rank_that_leaves_ends_the_waiting_of_its_neighbors(mode, leave, ranks_per_node):
    """Without a limit: they are told. For updates and for tokens."""

    def program(comm):
        hop = comm.hop(ONE, topology="complete", mode=mode, max_ig=1)
        done = 0
        for k in hop.iterations(8, timeout=math.inf):
            if comm.rank == 1 and k == 2:
                time.sleep(0.2)
                if leave == "raise":
                    raise KeyError("of rank 1")
                hop.leave()
                return done
            hop.step(ONE, timeout=math.inf)
            done += 1
        return done

    first, second, third = run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT, return_exceptions=True)
    assert (first, third) == (8, 8)
    assert second == 2 if leave == "close" else isinstance(second, KeyError)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_who_takes_part_follows_from_how_many_iterations_each_rank_makes(ranks_per_node):
    """Not from when: rank 0 leaves after 1 iteration, in which its update counts, rank 1 after 2."""

    def program(comm):
        hop = comm.hop(np.full(1, float(comm.rank)), topology="complete")
        received = []
        for _ in hop.iterations(comm.rank + 1, timeout=LIMIT):
            time.sleep(0.02 * (2 - comm.rank))
            hop.step(np.zeros(1), timeout=LIMIT)
            received.append(hop.received)
        hop.leave()
        return received

    assert run_ranks(3, program, ranks_per_node=ranks_per_node)[2] == [((0, 0), (1, 0)), ((1, 1),), ()]


def test_all_ranks_may_leave_without_an_iteration():
    def program(comm):
        for mode in MODES:
            comm.hop(ONE, topology="complete", mode=mode).leave()

    for ranks_per_node in SHAPES:
        run_ranks(3, program, ranks_per_node=ranks_per_node)


# --- Many iterations


@pytest.mark.slow
@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("mode", [pc.hop.BackupWorkers(1), pc.hop.BoundedStaleness(2)], ids=repr)
def test_memory_is_flat_over_a_thousand_iterations(mode, ranks_per_node):
    """An update of 64 KiB per iteration would be seen."""
    page = resource.getpagesize()

    def program(comm):
        hop = comm.hop(np.ones(1 << 14, np.float32), topology="complete", mode=mode)
        zero = np.zeros(1 << 14, np.float32)
        used = []
        for k in hop.iterations(1000, timeout=LIMIT):
            hop.step(zero, timeout=LIMIT)
            if k % 250 == 249:
                used.append(int(Path("/proc/self/statm").read_text().split()[1]) * page)
        assert abs(hop.parameters - 1).max() < 1e-4
        return used

    for used in run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=100.0):
        assert used[-1] - used[0] < 8 << 20, used
