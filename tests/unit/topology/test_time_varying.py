"""Topologies that are functions of the step."""

import numpy as np
import pytest

from pycollectives import topology

SIZES = [*range(1, 18), 64]


@pytest.mark.parametrize("size", SIZES)
def test_one_peer(size):
    changing = topology.one_peer_exponential(size)
    assert (changing.size, changing.period) == (size, max(1, (size - 1).bit_length()))
    for step in range(2 * changing.period):
        graph = changing.at(step)
        hop = 2 ** (step % changing.period) % size
        for rank in range(size):
            assert graph.out_neighbors(rank) == (((rank + hop) % size,) if size > 1 else ())
    changing.check_connected()
    changing.check_doubly_stochastic("uniform")
    changing.check_column_stochastic("push-sum")
    assert changing.union() == topology.exponential(size)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("name", ["one-peer-exponential", "alternating-exponential-ring"])
def test_a_period_gives_the_mean(name, size):
    changing = topology.by_name(name, size)
    values = np.arange(size, dtype=float) ** 2
    for step in range(changing.period):
        values = changing.at(step).matrix() @ values
    np.testing.assert_allclose(values, (np.arange(size) ** 2).mean())
    np.testing.assert_allclose(changing.matrix() @ np.arange(size), (size - 1) / 2)
    assert changing.spectral_gap() == pytest.approx(1, abs=1e-6)


def test_a_period_is_in_the_order_of_its_steps():
    changing = topology.one_peer_exponential(5)
    first, second, third = (changing.at(step).matrix("push-sum") for step in range(3))
    np.testing.assert_allclose(changing.matrix("push-sum"), third @ second @ first)
    star = topology.TimeVarying([topology.star(3), topology.ring(3)])
    assert not np.allclose(star.matrix(), star.at(0).matrix() @ star.at(1).matrix())
    np.testing.assert_allclose(star.matrix(), star.at(1).matrix() @ star.at(0).matrix())


def test_the_alternating_exponential_ring_of_decent_dp():
    """Its package's AlternatingExpRingTopology for 4 nodes of 2 ranks: the groups of each step."""
    changing = topology.alternating_exponential_ring(8, ranks_per_node=2)
    groups = [{tuple(sorted((rank, *changing.at(step).in_neighbors(rank)))) for rank in range(8)} for step in range(4)]
    assert groups == [
        {(0, 1), (2, 3), (4, 5, 6, 7)},
        {(0, 1, 2, 3), (4, 5), (6, 7)},
        {(0, 1), (4, 5), (2, 3, 6, 7)},
        {(0, 1, 4, 5), (2, 3), (6, 7)},
    ]
    changing.check_symmetric()
    changing.check_doubly_stochastic()
    assert changing.spectral_gap() == pytest.approx(1, abs=1e-6)


def test_one_node_averages_alone():
    changing = topology.alternating_exponential_ring(3, ranks_per_node=3)
    assert changing.period == 1
    assert changing.at(0) == topology.complete(3)


@pytest.mark.parametrize(("size", "width"), [(8, 3), (12, 4), (2, 4)])
def test_ranks_that_do_not_fill_the_nodes(size, width):
    with pytest.raises(ValueError, match=f"of two as the number of nodes, got {size} ranks with {width} per node"):
        topology.alternating_exponential_ring(size, width)


def test_a_static_topology_is_asked_in_the_same_way():
    for name in topology.NAMES:
        graph = topology.by_name(name, 8)
        for step in (0, 1, 1000):
            assert graph.at(step).size == graph.size == 8
            assert graph.at(step) == graph.at(step + graph.period)
        assert graph.union().size == 8
        assert graph.period > 1 or graph.union() is graph
        assert f"{graph.size} ranks" in graph.signature
        graph.check_connected()
        graph.check_doubly_stochastic("push-sum" if name == "exponential" else None) if name != "star" else None
        with pytest.raises(ValueError, match="step: expected at least 0, got -1"):
            graph.at(-1)


def test_signatures_and_comparison():
    one = topology.one_peer_exponential(8)
    same = topology.TimeVarying([one.at(step) for step in range(3)], name="other")
    assert one == same
    assert hash(one) == hash(same)
    assert one.signature == same.signature
    turned = topology.TimeVarying([one.at(step) for step in (1, 2, 0)])
    assert one != turned
    assert one.signature != turned.signature
    assert one != topology.ring(8)


def test_checks_name_the_step():
    changing = topology.one_peer_exponential(8)
    with pytest.raises(ValueError, match="one-peer-exponential, step 0, of 8 ranks: expected a symmetric graph"):
        changing.check_symmetric()
    with pytest.raises(ValueError, match="one-peer-exponential of 8 ranks: expected a bipartite graph"):
        changing.check_bipartite()
    star = topology.TimeVarying([topology.ring(4), topology.star(4)])
    with pytest.raises(ValueError, match="star of 4 ranks: expected uniform weights whose rows and columns sum to 1"):
        star.check_doubly_stochastic()
    with pytest.raises(ValueError, match="star of 4 ranks: expected push-sum weights whose rows sum to 1"):
        star.check_row_stochastic("push-sum")


def test_what_is_no_list_of_topologies():
    with pytest.raises(ValueError, match="topologies: expected at least one, got none"):
        topology.TimeVarying([])
    with pytest.raises(ValueError, match=r"topologies: expected the same number of ranks in all, got \[3, 4\]"):
        topology.TimeVarying([topology.ring(3), topology.ring(4)])
