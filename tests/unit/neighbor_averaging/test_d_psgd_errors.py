"""Averages with neighbors that do not come, or leave: on ranks that are threads of this process."""

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


def make(comm, kind, graph, like=ONE):
    if kind == "d-psgd":
        return comm.neighbor_averaging(like, topology=graph, weights="uniform", name="graph")
    return comm.push_sum(like, topology=graph, overlap=int(kind == "overlap"), name="graph")


KINDS = pytest.mark.parametrize("kind", ["d-psgd", "push-sum", "overlap"])


# --- Who has not come


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@KINDS
def test_a_stall_names_the_neighbor_and_the_step_and_wait_may_be_called_again(kind, ranks_per_node):
    """Rank 2 is late for its third step; its neighbors are told so, and get the right result later."""
    stalled = threading.Barrier(3)
    late_by = int(kind == "overlap")  # what is sent in a step is waited for in the next

    def program(comm):
        average = make(comm, kind, topology.complete(3))
        w = np.full(1, float(comm.rank))
        for step in range(4 + late_by):
            if step == 2 and comm.rank == 2:
                stalled.wait(LIMIT)
            request = average.start(w)
            if step == 2 + late_by and comm.rank != 2:
                before = w.copy()
                with pytest.raises(pc.StallError) as caught:
                    request.wait(out=w, timeout=0.3)
                assert (w == before).all()
                stalled.wait(LIMIT)
            request.wait(out=w, timeout=LIMIT)
        return str(caught.value) if comm.rank != 2 else "", float(w[0])

    outcome = run_ranks(3, program, ranks_per_node=ranks_per_node)
    what = "neighbor averaging" if kind == "d-psgd" else "push-sum"
    for text, _ in outcome[:2]:
        step = 2 + late_by
        assert text.startswith(f"{what} 'graph', step {step} (waits for step 2 of rank 2): not complete after "), text
        assert "have not arrived: rank 2 (alive; last call" in text, text
    if not late_by:
        assert [result for _, result in outcome] == [pytest.approx(1.0)] * 3


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_names_a_receiver_that_is_behind(ranks_per_node):
    """On a directed ring, rank 0 does not take what rank 3 gives: that is two steps ahead, and has no third buffer."""
    done = threading.Event()

    def program(comm):
        ps = comm.push_sum(
            ONE, topology=pc.topology.Topology(4, [(rank, (rank + 1) % 4) for rank in range(4)]), name="graph"
        )
        if comm.rank == 3:
            request = ps.start(ONE)
            request.wait(timeout=LIMIT)
            request = ps.start(ONE)
            with pytest.raises(
                pc.StallError, match=r"step 1 \(waits for step 0 of rank 0\): .*have not arrived: rank 0"
            ):
                request.wait(timeout=0.2)
            done.set()
            request.wait(timeout=LIMIT)
            return
        if comm.rank == 0:
            assert done.wait(LIMIT)
        request = ps.start(ONE)
        if comm.rank == 2:
            request.wait(timeout=LIMIT)
            request = ps.start(ONE)
        assert done.wait(LIMIT)
        request.wait(timeout=LIMIT)

    run_ranks(4, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_says_where_the_neighbor_waits(ranks_per_node):
    """Two ranks in steps of two different averages."""
    met = threading.Barrier(2)

    def program(comm):
        averages = [comm.neighbor_averaging(ONE, topology=topology.ring(2), name=name) for name in "ab"]
        average = averages[comm.rank]
        request = average.start(ONE)
        met.wait(LIMIT)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"'a', step 0 .*have not arrived, but wait in 'b': rank 1"):
                request.wait(timeout=2)
        else:
            with pytest.raises(pc.StallError, match="'b', step 0"):
                request.wait(timeout=5)
        met.wait(LIMIT)

    run_ranks(2, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_says_whom_the_neighbors_wait_for(ranks_per_node):
    """On a ring of four, rank 1 makes a step less: ranks 0 and 2 wait for it, and rank 3 for them."""
    met = threading.Barrier(4)

    def program(comm):
        average = comm.neighbor_averaging(ONE, topology=topology.ring(4), name="graph")
        average.average(ONE.copy(), timeout=LIMIT)
        text = ""
        if comm.rank != 1:
            request = average.start(ONE)
            met.wait(LIMIT)
            if comm.rank == 3:
                # Its step is complete once ranks 0 and 2 have begun theirs; the next one is not.
                request.wait(timeout=LIMIT)
                request = average.start(ONE)
            with pytest.raises(pc.StallError) as caught:
                request.wait(timeout=1.0 if comm.rank == 3 else 4.0)
            text = str(caught.value)
        else:
            met.wait(LIMIT)
        met.wait(LIMIT)
        return text

    texts = run_ranks(4, program, ranks_per_node=ranks_per_node)
    assert "ranks 0, 2 wait themselves for rank 1" in texts[3], texts
    assert "have not arrived: rank 1" in texts[0], texts
    assert "have not arrived: rank 1" in texts[2], texts


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_names_a_mean_that_the_neighbor_waits_in(ranks_per_node):
    met = threading.Barrier(2)

    def program(comm):
        average = comm.neighbor_averaging(ONE, topology=topology.ring(2), name="graph")
        met.wait(LIMIT)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"have not arrived, but wait in 'preduce.*': rank 1"):
                average.average(ONE.copy(), timeout=1)
        else:
            with pytest.raises(pc.StallError):
                comm.preduce(ONE.copy(), range(2), timeout=3)
        met.wait(LIMIT)

    run_ranks(2, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_the_default_limits_wait_and_final(ranks_per_node):
    gone = threading.Event()

    def program(comm):
        average = comm.neighbor_averaging(ONE, topology=topology.ring(2))
        if comm.rank == 0:
            request = average.start(ONE)
            for call in (request.wait, average.final):
                with pytest.raises(pc.StallError):
                    call()
            gone.set()
        assert gone.wait(LIMIT)

    run_ranks(loopback(2, timeout=1.0, ranks_per_node=ranks_per_node), program)


# --- Ranks that leave


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("leave", ["close", "raise"])
@KINDS
@pytest.mark.filterwarnings("error")
def test_a_rank_that_leaves_ends_the_waiting_of_its_neighbors(kind, leave, ranks_per_node):
    """Without a limit: they are told. No contribution can be lost, so there is no warning."""

    def program(comm):
        average = make(comm, kind, topology.complete(3))
        steps = 0
        for step in range(4):
            if comm.rank == 1 and step == 2:
                time.sleep(0.2)
                if leave == "raise":
                    raise KeyError("of rank 1")
                average.close()
                return steps
            request = average.start(ONE)
            request.wait(timeout=None)
            steps += 1
        return steps

    first, second, third = run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT, return_exceptions=True)
    assert (first, third) == (4, 4)
    assert second == 2 if leave == "close" else isinstance(second, KeyError)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@KINDS
def test_a_rank_may_leave_between_start_and_wait(kind, ranks_per_node):
    """It has taken part in that step: its neighbors and its own `final` count it."""

    def program(comm):
        average = make(comm, kind, topology.complete(3))
        request = average.start(np.full(1, float(comm.rank)))
        if comm.rank == 1:
            average.close()
            with pytest.raises(pc.ClosedError):
                request.wait()
        else:
            request.wait(timeout=LIMIT)
        final = average.final(timeout=LIMIT)
        average.close()
        after = average.final(timeout=LIMIT)
        return float(final[0]), float(after[0])

    results = run_ranks(3, program, ranks_per_node=ranks_per_node)
    assert results == [(pytest.approx(1.0), pytest.approx(1.0))] * 3


def test_final_after_close_is_final_before_it():
    """What is on its way to a rank is taken in after it has left too, once."""

    def program(comm):
        w, finals = np.full(3, float(comm.rank)), []
        for closes_first in (False, True):
            ps = comm.push_sum(w, topology=pc.topology.Topology(3, [(0, 1), (1, 2), (2, 0), (0, 2)]), overlap=1)
            model = w.copy()
            for step in range(5 + comm.rank):
                del step
                request = ps.start(model)
                request.wait(out=model, timeout=LIMIT)
            if closes_first:
                ps.leave()
            finals.append((ps.final(timeout=LIMIT).tobytes(), ps.weight))
            ps.leave()
            finals.append((ps.final(timeout=LIMIT).tobytes(), ps.weight))
        return finals

    for ranks_per_node in SHAPES:
        for finals in run_ranks(3, program, ranks_per_node=ranks_per_node):
            assert finals == [finals[0]] * 4


def test_all_ranks_may_leave_without_a_step():
    def program(comm):
        for kind in ("d-psgd", "overlap"):
            average = make(comm, kind, topology.complete(3))
            average.close()
            with pytest.raises(RuntimeError, match="no step was started"):
                average.final()

    for ranks_per_node in SHAPES:
        run_ranks(3, program, ranks_per_node=ranks_per_node)


def test_another_thread_is_refused():
    def program(comm):
        average = comm.neighbor_averaging(ONE, topology=topology.ring(2), name="graph")
        if comm.rank == 0:
            request = average.start(ONE)
            waits = threading.Thread(target=request.wait, kwargs={"timeout": LIMIT})
            waits.start()
            while "wait" not in comm.flight_record()["collectives"][-1]:
                time.sleep(0.01)
            with pytest.raises(RuntimeError, match="'graph': called while another thread is in a call of it"):
                average.start(ONE)
            finished.set()
            waits.join(LIMIT)
        else:
            assert finished.wait(LIMIT)
            average.average(ONE.copy())

    finished = threading.Event()
    run_ranks(2, program)


# --- Many steps


@pytest.mark.slow
@pytest.mark.parametrize("ranks_per_node", SHAPES)
@KINDS
def test_memory_is_flat_over_a_thousand_steps(kind, ranks_per_node):
    """A buffer of 64 KiB per step would be seen."""
    page = resource.getpagesize()

    def program(comm):
        w = np.ones(1 << 14, np.float32)
        average = make(comm, kind, topology.one_peer_exponential(3), like=w)
        used = []
        for step in range(1000):
            request = average.start(w)
            request.wait(out=w, timeout=LIMIT)
            if step % 250 == 249:
                used.append(int(Path("/proc/self/statm").read_text().split()[1]) * page)
        assert abs(w - 1).max() < 1e-4
        return used

    for used in run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=100.0):
        assert used[-1] - used[0] < 8 << 20, used
