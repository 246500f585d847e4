"""The queues of Hop by themselves, on ranks that are threads of this process."""

import threading
import time

import numpy as np
import pytest
from neighbor_oracle import SHAPES

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0


def tags(updates):
    return [(u.iteration, u.sender, u.update.tolist()) for u in updates]


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_tags(ranks_per_node):
    """Section 4.1: by iteration and sender, by one of them, or whatever is first."""
    sent = threading.Barrier(4)

    def program(comm):
        q = comm.update_queue(np.zeros(2), owner=1, max_ig=3)
        if comm.rank != 1:
            for k in range(3):
                q.enqueue(np.array([k, comm.rank], float), iteration=k, timeout=LIMIT)
            sent.wait(LIMIT)
            return None
        given = [tags(q.dequeue(1, iteration=0, sender=2, timeout=LIMIT))]
        sent.wait(LIMIT)
        while q.size() < 8:
            time.sleep(0.001)
        cases = [{}, {"iteration": 0}, {"sender": 2}, {"iteration": 2, "sender": 3}, {"iteration": 3}]
        given.append([q.size(**case) for case in cases])
        given.append(tags(q.dequeue(2, sender=3, timeout=LIMIT)))
        given.append(tags(q.dequeue(2, timeout=LIMIT)))
        given.append(tags(q.dequeue(3, iteration=2, timeout=LIMIT)))
        given.append(q.size())
        return given

    assert run_ranks(4, program, ranks_per_node=ranks_per_node)[1] == [
        [(0, 2, [0.0, 2.0])],
        [8, 2, 2, 1, 0],
        [(0, 3, [0.0, 3.0]), (1, 3, [1.0, 3.0])],
        [(0, 0, [0.0, 0.0]), (1, 0, [1.0, 0.0])],
        [(2, 0, [2.0, 0.0]), (2, 2, [2.0, 2.0]), (2, 3, [2.0, 3.0])],
        0,  # iteration 1 of rank 2 was stale
    ]


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_full_queue_holds_up_the_sender_and_stale_updates_make_room(ranks_per_node):
    """Slots are those of iteration modulo max_ig + 1 = 3. Between nodes the sender has as many copies besides."""
    full = threading.Event()

    def program(comm):
        q = comm.update_queue(np.zeros(1), owner=0, max_ig=2, name="own")
        rooms = 3 if ranks_per_node == "all" else 6
        if comm.rank == 1:
            for k in range(rooms):
                q.enqueue(np.full(1, float(k)), iteration=k, timeout=LIMIT)
            with pytest.raises(
                pc.StallError,
                match=f"update queue 'own', enqueue .waits for room for the update of iteration {rooms} at rank 0",
            ):
                q.enqueue(np.zeros(1), iteration=rooms, timeout=0.3)
            full.set()
            for k in range(rooms, 20):
                q.enqueue(np.full(1, float(k)), iteration=k, timeout=LIMIT)
            return None
        assert full.wait(LIMIT)
        while q.size() < 3:
            time.sleep(0.001)
        last = q.dequeue(1, iteration=19, timeout=LIMIT)
        return tags(last), q.size()

    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == ([(19, 1, [19.0])], 0)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_what_makes_room_is_discarded_by_the_owner_and_the_sender_at_once(ranks_per_node):
    """As the owner asks for 2 k + 1 it discards 2 k, whose slot the sender waits for: nothing else is lost."""
    calls = 3000

    def program(comm):
        q = comm.update_queue(np.zeros(1), owner=0, max_ig=1)
        if comm.rank == 0:
            return [tags(q.dequeue(1, iteration=2 * k + 1, timeout=LIMIT)) for k in range(calls)]
        for k in range(2 * calls):
            q.enqueue(np.full(1, float(k)), iteration=k, timeout=LIMIT)
        return None

    expected = [[(k, 1, [float(k)])] for k in range(1, 2 * calls, 2)]
    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == expected


def test_more_updates_than_there_can_be():
    def program(comm):
        q = comm.update_queue(np.zeros(1), owner=0, max_ig=2)
        tokens = comm.token_queue(owner=0, taker=1)
        if comm.rank == 0:
            cases = [(3, {"iteration": 1}, 2), (2, {"iteration": 1, "sender": 2}, 1), (4, {"sender": 1}, 3), (7, {}, 6)]
            for m, given, most in cases:
                with pytest.raises(ValueError, match=f"m: expected at most {most}, got {m}"):
                    q.dequeue(m, **given)
            with pytest.raises(ValueError, match="tokens: expected at most"):
                tokens.enqueue(2**63)
            tokens.enqueue(2**62 - tokens.size())
            with pytest.raises(ValueError, match="enqueue: expected at most 4611686018427387904 tokens in the queue"):
                tokens.enqueue(1)
            assert tokens.size() == 2**62
        else:
            with pytest.raises(ValueError, match="iteration: expected at most"):
                q.enqueue(np.zeros(1), iteration=2**63 - 1)

    run_ranks(3, program)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_the_same_iteration_may_be_sent_again(ranks_per_node):
    def program(comm):
        q = comm.update_queue(np.zeros(1), owner=0, max_ig=1)
        if comm.rank == 0:
            return [u.update[0] for _ in range(20) for u in q.dequeue(1, iteration=5, timeout=LIMIT)]
        for value in range(20):
            q.enqueue(np.full(1, float(value)), iteration=5, timeout=LIMIT)
        return None

    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == list(range(20))


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_stall_of_dequeue_names_senders_and_takes_nothing(ranks_per_node):
    stalled = threading.Event()

    def program(comm):
        q = comm.update_queue(np.zeros(1), owner=0, name="own")
        if comm.rank == 2:
            assert stalled.wait(LIMIT)
        if comm.rank != 0:
            q.enqueue(np.ones(1), iteration=4, timeout=LIMIT)
            return
        while q.size() == 0:
            time.sleep(0.001)
        with pytest.raises(pc.StallError, match=r"dequeue \(waits for the update of iteration 4 of rank 2"):
            q.dequeue(2, iteration=4, timeout=0.3)
        with pytest.raises(pc.StallError, match=r"dequeue \(waits for an update of rank"):
            q.dequeue(2, timeout=0.3)
        assert q.size() == 1
        stalled.set()
        assert len(q.dequeue(2, iteration=4, timeout=LIMIT)) == 2

    run_ranks(3, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_who_leaves(ranks_per_node):
    """What has been sent is delivered; then nobody waits for more. Updates for an owner that has left are discarded."""

    def program(comm):
        q = comm.update_queue(np.zeros(1000), owner=0, senders=[1], name="own")
        back = comm.update_queue(np.zeros(1), owner=1, senders=[0])
        if comm.rank == 1:
            for k in range(3):
                q.enqueue(np.full(1000, float(k)), iteration=k, timeout=LIMIT)
            q.leave()
            back.close()
            with pytest.raises(pc.ClosedError, match="'own' is closed"):
                q.enqueue(np.zeros(1000), iteration=3)
        if comm.rank == 0:
            assert [u.iteration for u in q.dequeue(3)] == [0, 1, 2]
            with pytest.raises(pc.ClosedError, match="'own': dequeue: expected 1 updates, got 0, and all who could"):
                q.dequeue(1)
            for k in range(50):
                back.enqueue(np.zeros(1), iteration=k, timeout=LIMIT)

    run_ranks(3, program, ranks_per_node=ranks_per_node)


def test_what_is_refused():
    def program(comm):
        for arguments, text in [
            ({"owner": 3}, "owner"), ({"owner": 0, "senders": [0, 1]}, "senders: expected ranks other than the owner"),
            ({"owner": 0, "senders": [1, 1]}, r"senders: expected different ranks, got \[1, 1\]"),
            ({"owner": 0, "senders": [7]}, "senders"), ({"owner": 0, "max_ig": 0}, "max_ig"),
        ]:  # fmt: skip
            with pytest.raises((ValueError, pc.MismatchError), match=text):
                comm.update_queue(np.zeros(2), **arguments)
        for arguments, text in [
            ({"owner": 1, "taker": 1}, "taker: expected a rank other"),
            ({"owner": 0, "taker": 1, "tokens": -1}, "tokens"),
        ]:  # fmt: skip
            with pytest.raises((ValueError, pc.MismatchError), match=text):
                comm.token_queue(**arguments)
        q = comm.update_queue(np.zeros(2), owner=0, senders=[1], name="own")
        if comm.rank != 0:
            with pytest.raises(RuntimeError, match="own: dequeue: expected a call on the owner, rank 0, got one on"):
                q.dequeue(1)
        if comm.rank != 1:
            with pytest.raises(RuntimeError, match="own: enqueue: expected a call on a sender, rank 1, got one on"):
                q.enqueue(np.zeros(2), iteration=0)
        else:
            with pytest.raises(ValueError, match="own: expected shape"):
                q.enqueue(np.zeros(3), iteration=0)
            with pytest.raises(ValueError, match="iteration"):
                q.enqueue(np.zeros(2), iteration=-1)
        if comm.rank == 0:
            with pytest.raises(ValueError, match=r"own: sender: expected one of \(1,\), got 2"):
                q.size(sender=2)
            assert q.dequeue(0, iteration=4) == []
            with pytest.raises(ValueError, match=r"'own': dequeue: iteration: expected 4 or later, since .* got 3"):
                q.dequeue(1, iteration=3)
            assert repr(q) == "<UpdateQueue 'own' of 2 float64 of rank 0>"

    run_ranks(3, program)


# --- Tokens


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_tokens(ranks_per_node):
    """All or none are taken out; both sides see the same in the end."""
    stalled = threading.Event()
    taken = threading.Event()

    def program(comm):
        q = comm.token_queue(owner=1, taker=0, tokens=2, name="own")
        assert q.size() == 2
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"token queue 'own', dequeue \(waits for a token of rank 1"):
                q.dequeue(3, timeout=0.3)
            assert q.size() == 2
            stalled.set()
            q.dequeue(3, timeout=LIMIT)
            taken.set()
        else:
            assert stalled.wait(LIMIT)
            q.enqueue(5)
            assert taken.wait(LIMIT)
        while q.size() != 4:
            time.sleep(0.001)
        with pytest.raises(
            RuntimeError, match=r"own: (enqueue: expected a call on the owner|dequeue: expected a call on the taker)"
        ):
            (q.enqueue if comm.rank == 0 else q.dequeue)(1)
        return repr(q)

    assert run_ranks(2, program, ranks_per_node=ranks_per_node)[0] == "<TokenQueue 'own' of rank 1 for rank 0>"


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_an_owner_that_has_left_gives_tokens_without_end(ranks_per_node):
    def program(comm):
        q = comm.token_queue(owner=2, taker=0, tokens=0)
        if comm.rank == 2:
            time.sleep(0.1)
            q.leave()
        if comm.rank == 0:
            for _ in range(100):
                q.dequeue(2, timeout=LIMIT)

    run_ranks(3, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
def test_a_scheme_of_ones_own(ranks_per_node):
    """Fig. 7 written with the queues: two ranks, gaps of at most 2."""

    def program(comm):
        me, other = comm.rank, 1 - comm.rank
        updates = [comm.update_queue(np.zeros(1), owner=rank, max_ig=2) for rank in range(2)]
        tokens = [comm.token_queue(owner=rank, taker=1 - rank, tokens=1) for rank in range(2)]
        x = np.full(1, float(me))
        for k in range(200):
            tokens[me].enqueue(1)
            updates[other].enqueue(x, iteration=k, timeout=LIMIT)
            (received,) = updates[me].dequeue(1, iteration=k, timeout=LIMIT)
            x = (x + received.update) / 2 + 1
            tokens[other].dequeue(1, timeout=LIMIT)
        return float(x[0])

    assert run_ranks(2, program, ranks_per_node=ranks_per_node) == [200.5, 200.5]
