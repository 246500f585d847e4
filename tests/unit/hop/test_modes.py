"""Modes and the gaps that they allow: Table 1."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import topology
from pycollectives.hop.gaps import gap_bounds

INF = np.inf


@pytest.mark.parametrize("make", [topology.ring, topology.ring_based, topology.exponential, topology.star])
def test_every_row_of_table_1(make):
    """As the paper writes it, pair by pair."""
    graph = make(7)
    for i in range(7):
        for j in range(7):
            to_i, to_j = graph.distance(j, i), graph.distance(i, j)
            none = 0 if i == j else INF
            rows = {
                pc.hop.Standard(): to_i,
                pc.hop.BoundedStaleness(0): to_i,
                pc.hop.BoundedStaleness(4): 5 * to_i,
                pc.hop.BackupWorkers(1): none,
                pc.hop.Hybrid(1, 4): none,
                pc.hop.NotifyAck(): min(to_i, 2 * to_j),
            }
            for mode, bound in rows.items():
                assert gap_bounds(graph, mode, None)[i, j] == bound
                assert gap_bounds(graph, mode, 3)[i, j] == min(bound, 3 * to_j)


def test_a_directed_ring():
    """An update goes one way: rank 0 can be one ahead of its in-neighbor, and of its out-neighbor by tokens."""
    graph = pc.topology.Topology(5, [(rank, (rank + 1) % 5) for rank in range(5)])
    assert gap_bounds(graph, pc.hop.Standard(), None)[0].tolist() == [0, 4, 3, 2, 1]
    assert gap_bounds(graph, pc.hop.Standard(), 3)[0].tolist() == [0, 3, 3, 2, 1]
    assert gap_bounds(graph, pc.hop.NotifyAck(), None)[0].tolist() == [0, 2, 3, 2, 1]
    assert gap_bounds(graph, pc.hop.BackupWorkers(1), 3)[0].tolist() == [0, 3, 6, 9, 12]


def test_one_rank_and_graphs_that_are_not_connected():
    assert gap_bounds(topology.ring(1), pc.hop.Standard(), 2).tolist() == [[0]]
    assert gap_bounds(pc.topology.Topology(2, [(0, 1)]), pc.hop.Standard(), None).tolist() == [[0, INF], [1, 0]]
    with pytest.raises(ValueError, match="max_ig"):
        gap_bounds(topology.ring(3), pc.hop.Standard(), 0)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: pc.hop.BackupWorkers(0), "BackupWorkers: expected n >= 1, got 0"),
    (lambda: pc.hop.BoundedStaleness(-1), "BoundedStaleness: expected s >= 0, got -1"),
    (lambda: pc.hop.Hybrid(1, -1), "Hybrid: expected s >= 0, got -1"),
    (lambda: pc.hop.Hybrid(0, 1), "Hybrid: expected n >= 1, got 0"),
    (lambda: pc.hop.Skip(0), "Skip: expected max_jump >= 1, got 0"),
    (lambda: pc.hop.Skip(2, 0), "Skip: expected trigger >= 1, got 0"),
])  # fmt: skip
def test_numbers_that_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_what_is_no_number():
    with pytest.raises(TypeError, match="BackupWorkers: expected an integer n, got 'one'"):
        pc.hop.BackupWorkers("one")
