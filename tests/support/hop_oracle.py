"""The required behavior of Hop, taken from the paper and not from the program, for histories of the simulator."""

from __future__ import annotations

import numpy as np


class Graph:
    """The neighbors of each rank, without itself."""

    def __init__(self, topology):
        self.size = topology.size
        self.incoming = [topology.in_neighbors(rank) for rank in range(self.size)]
        self.outgoing = [topology.out_neighbors(rank) for rank in range(self.size)]


def check_values(history, graph, mode, *, serial, initial, deltas, iterations, skips):
    """Check that each rank has reduced the required updates and no others, with the paper's weights, from values only.

    Replays the entries in the order of virtual time: a rank's parameters after each iteration follow from what it has
    received and what the senders sent.
    """
    sent = {}  # (rank, iteration): value
    current = list(initial)
    newest = [[-1] * graph.size for _ in range(graph.size)]  # iter_rcv of Fig. 9: [receiver][sender]
    seen = set()
    for what, rank, k, _, value, received in history["entries"]:
        if what == "entered":
            assert value == current[rank]
            sent[rank, k] = current[rank] + deltas[rank] if serial else current[rank]
            continue
        base = current[rank] + deltas[rank] if serial and what == "stepped" else current[rank]
        if what == "renewed":
            assert skips
        check_received(received, rank, k, graph, mode, iterations, newest[rank])
        weights = [1.0 if mode.staleness is None else mode.staleness + 1.0]
        values = [base]
        for sender, iteration in received:
            assert (rank, sender, iteration) not in seen, "an update was reduced twice"
            seen.add((rank, sender, iteration))
            weights.append(1.0 if mode.staleness is None else iteration - (k - mode.staleness) + 1.0)
            values.append(sent[sender, iteration])
        expected = np.dot(weights, values) / sum(weights)
        if what == "stepped" and not serial:
            expected += deltas[rank]
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
        current[rank] = value
    return current


def check_received(received, rank, k, graph, mode, iterations, newest):
    """Check that Recv(k) had enough updates, and no stale ones: Fig. 4, line 13; Figs 8 and 9."""
    senders = [sender for sender, _ in received]
    assert senders == sorted(set(senders))
    assert set(senders) <= set(graph.incoming[rank])
    participants = [j for j in graph.incoming[rank] if iterations[j] > k]
    if mode.staleness is None:
        assert all(iteration == k for _, iteration in received), "an update of another iteration"
        assert len(set(senders) & set(participants)) >= len(participants) - mode.backup_of(rank), "too few updates"
        return
    for sender, iteration in received:
        assert iteration > newest[sender], "an older update than one received before"
        assert iteration >= k - mode.staleness, "an update beyond the bound"
        newest[sender] = iteration
    satisfactory = [j for j in participants if newest[j] >= k - mode.staleness]
    assert len(satisfactory) >= len(participants) - mode.backup_of(rank), "too few updates"


def standstill(graph, mode, max_ig, stopped, at, iterations, *, serial):
    """Return where every rank ends if one computes indefinitely in iteration `at`, from the rules without times.

    No rank skips. In the parallel graph that rank has sent the update of iteration `at`, in the serial one it has not
    (section 3.2).
    """
    entered, sent, reduced = ([0] * graph.size for _ in range(3))  # the iteration; how many of the others

    def send(rank):
        if serial and rank == stopped and entered[rank] >= at:
            return False
        acknowledged = all(reduced[j] >= entered[rank] for j in graph.outgoing[rank])
        if sent[rank] > entered[rank] or (mode.acknowledges and not acknowledged):
            return False
        sent[rank] += 1
        return True

    def reduce(rank):
        k = entered[rank]
        missing = sum(sent[j] <= k - (mode.staleness or 0) for j in graph.incoming[rank])
        if reduced[rank] > k or sent[rank] <= k or missing > mode.backup_of(rank) or (rank == stopped and k >= at):
            return False
        reduced[rank] += 1
        return True

    def enter(rank):
        k = entered[rank]
        tokens = all(entered[j] - k + max_ig >= 1 for j in graph.outgoing[rank])
        if reduced[rank] <= k or not tokens or k + 1 >= iterations:
            return False
        entered[rank] += 1
        return True

    while any(any([send(rank), reduce(rank), enter(rank)]) for rank in range(graph.size)):
        pass
    return entered
