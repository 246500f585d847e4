"""Graphs by name and size: which ranks are neighbors."""

import pickle

import pytest

import pycollectives as pc
from pycollectives import topology

SIZES = [*range(1, 18), 64]
STATIC = topology.NAMES[:9]
REFUSED = {"hypercube": lambda size: size & (size - 1), "double-ring": lambda size: size % 2}
CASES = [(name, size) for name in STATIC for size in SIZES if not REFUSED.get(name, lambda size: False)(size)]


def edges(graph):
    return {(source, target) for source in range(graph.size) for target in graph.out_neighbors(source)}


def on_circle(size, hops):
    """Pairs of ranks that are so many hops apart on a circle, in either direction."""
    return {
        (a, b)
        for a in range(size)
        for b in range(size)
        if a != b and ((a - b) % size in hops or (b - a) % size in hops)
    }


def rows_of(size):
    return max(rows for rows in range(1, size + 1) if size % rows == 0 and rows * rows <= size)


def expected_edges(name, size):
    """The edges by another rule than the package's."""
    pairs = {(a, b) for a in range(size) for b in range(size) if a != b}
    half = size // 2
    columns = size // rows_of(size)
    powers = {2**exponent for exponent in range(12)}

    def next_to(a, b, length):
        return (a - b) % length in (1, length - 1)

    return {
        "ring": lambda: on_circle(size, {1}),
        "ring-based": lambda: on_circle(size, {1, half}),
        "double-ring": lambda: {
            (a, b)
            for a, b in pairs
            if abs(a - b) == half
            or (a // half == b // half and (a % half, b % half) in on_circle(half, {1, half // 2}))
        },
        "exponential": lambda: {(a, b) for a, b in pairs if (b - a) % size in powers},
        "bipartite-exponential": lambda: {
            (a, b) for a, b in on_circle(size, {1} | {power + 1 for power in powers - {1}}) if a % 2 != b % 2
        },
        "hypercube": lambda: {(a, b) for a, b in pairs if (a ^ b).bit_count() == 1},
        "torus": lambda: {
            (a, b)
            for a, b in pairs
            if (a // columns == b // columns and next_to(a % columns, b % columns, columns))
            or (a % columns == b % columns and next_to(a // columns, b // columns, size // columns))
        },
        "star": lambda: {(a, b) for a, b in pairs if 0 in (a, b)},
        "complete": lambda: pairs,
    }[name]()


@pytest.mark.parametrize(
    ("nodes", "between"),
    [
        ([0], set()),
        ([0, 0, 0], set()),
        ([0, 0, 1, 1], {(0, 2)}),
        ([0, 0, 0, 1, 1, 1, 2, 2], {(0, 3), (3, 6), (0, 6)}),
        ([0, 1, 0, 2, 1, 3], {(0, 1), (1, 3), (3, 5), (0, 5)}),
        ([7, 3, 7], {(0, 1)}),
    ],
)
def test_two_levels(nodes, between):
    graph = topology.two_level(nodes)
    ranks = range(len(nodes))
    within = {(a, b) for a in ranks for b in ranks if a != b and nodes[a] == nodes[b]}
    assert edges(graph) == within | between | {(b, a) for a, b in between}
    assert graph.is_connected


@pytest.mark.parametrize(
    ("nodes", "between"),
    [
        ([0, 0], set()),
        ([0, 1], {(0, 1)}),
        ([0, 0, 1, 1], {(1, 2), (0, 3)}),
        ([0, 0, 0, 0, 1, 1, 2, 2], {(1, 4), (5, 6), (0, 7)}),
        ([0, 1, 0, 2, 1, 3], {(1, 2), (3, 4), (3, 5), (0, 5)}),
    ],
)
def test_two_levels_whose_links_end_at_two_ranks(nodes, between):
    graph = topology.two_level(nodes, gates=2)
    ranks = range(len(nodes))
    within = {(a, b) for a in ranks for b in ranks if a != b and nodes[a] == nodes[b]}
    assert edges(graph) == within | between | {(b, a) for a, b in between}
    with pytest.raises(ValueError, match="gates: expected at most 2"):
        topology.two_level(nodes, gates=3)


@pytest.mark.parametrize(
    ("nodes", "kind", "text"),
    [
        ([], ValueError, "two-level: ranks: expected at least 1"),
        ([0, -1], ValueError, r"nodes\[1\]: expected at least 0"),
        ([0.5], TypeError, r"nodes\[0\]: expected an integer"),
    ],
)
def test_two_levels_of_no_nodes(nodes, kind, text):
    with pytest.raises(kind, match=text):
        topology.two_level(nodes)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_edges(name, size):
    graph = topology.by_name(name, size)
    assert (graph.name, graph.size, graph.period) == (name, size, 1)
    assert edges(graph) == expected_edges(name, size)
    assert graph.is_connected
    assert graph.is_symmetric == all((target, source) in edges(graph) for source, target in edges(graph))
    assert graph.is_symmetric or name == "exponential"
    for rank in range(size):
        assert graph.in_neighbors(rank) == tuple(sorted(a for a, b in edges(graph) if b == rank))
        assert graph.out_neighbors(rank) == tuple(sorted(graph.out_neighbors(rank)))
    assert graph.at(7) is graph


@pytest.mark.parametrize(
    ("name", "size", "degree"),
    [
        ("ring", 17, 2),
        ("ring-based", 16, 3),
        ("ring-based", 17, 4),
        ("double-ring", 16, 4),
        ("exponential", 64, 6),
        ("exponential", 17, 5),
        ("bipartite-exponential", 64, 12),  # hops of 1, 3, 5, 9, 17 and 33 in both directions
        ("hypercube", 64, 6),
        ("torus", 64, 4),
        ("torus", 17, 2),
        ("complete", 9, 8),
    ],
)
def test_degrees(name, size, degree):
    graph = topology.by_name(name, size)
    assert {len(graph.in_neighbors(rank)) for rank in range(size)} == {degree}
    assert {len(graph.out_neighbors(rank)) for rank in range(size)} == {degree}


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("hypercube", 12, "hypercube: expected a power of two as the number of ranks, got 12"),
        ("double-ring", 7, "double-ring: expected an even number of ranks, got 7"),
        ("ring", 0, "ring: size: expected at least 1, got 0"),
        ("alternating-exponential-ring", 6, "a power of two as the number of nodes, got 6 ranks with 1 per node"),
        ("rings", 4, "topology: expected 'ring' or 'ring-based' or 'double-ring' or .*'star' or .*, got 'rings'"),
    ],
)
def test_what_there_is_not(name, size, message):
    with pytest.raises(ValueError, match=message) as error:
        topology.by_name(name, size)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", STATIC)
def test_a_size_is_an_integer(name):
    with pytest.raises(TypeError, match=f"{name}: size: expected an integer, got 4.0"):
        topology.by_name(name, 4.0)


def test_edges_of_ones_own():
    graph = pc.topology.Topology(3, [(0, 1), (0, 1), (1, 2)], name="line")
    assert repr(graph) == "<Topology line of 3 ranks, 2 directed edges>"
    assert (graph.in_neighbors(1), graph.out_neighbors(1)) == ((0,), (2,))
    with pytest.raises(ValueError, match=r"edges: expected edges between different ranks, got \(1, 1\)"):
        pc.topology.Topology(3, [(1, 1)])
    with pytest.raises(ValueError, match="target: expected 0 <= target < 3, got 3"):
        pc.topology.Topology(3, [(1, 3)])
    with pytest.raises(ValueError, match="rank: expected 0 <= rank < 3, got 3"):
        graph.in_neighbors(3)


def test_equal_graphs_have_one_hash_and_signature():
    ring, other = topology.ring(5), topology.torus(5)
    assert ring == other
    assert hash(ring) == hash(other)
    assert ring.signature == other.signature
    assert ring != topology.complete(5)
    assert ring.signature != topology.complete(5).signature
    assert ring != "ring"
    assert len({topology.by_name(name, 16) for name in STATIC}) == len(STATIC)
    assert len({topology.by_name(name, 16).signature for name in STATIC}) == len(STATIC)


def test_own_weights_count_in_a_comparison():
    one, other = topology.from_matrix([[0.5, 0.5], [0.5, 0.5]]), topology.from_matrix([[0.4, 0.6], [0.6, 0.4]])
    assert one == topology.from_matrix([[0.5, 0.5], [0.5, 0.5]])
    assert one != other
    assert one.signature != other.signature
    assert one != topology.complete(2)
    assert one.signature != topology.complete(2).signature


@pytest.mark.parametrize("name", topology.NAMES)
def test_pickling(name):
    graph = topology.by_name(name, 8)
    copy = pickle.loads(pickle.dumps(graph))
    assert copy == graph
    assert (copy.name, copy.signature, repr(copy)) == (graph.name, graph.signature, repr(graph))


def test_pickling_of_own_weights():
    graph = topology.from_matrix([[0.5, 0.5], [0.25, 0.75]], name="mine")
    copy = pickle.loads(pickle.dumps(graph))
    assert copy == graph
    assert copy.matrix().tolist() == [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize("attribute", ["size", "name", "weight", "_weights"])
def test_a_topology_does_not_change(attribute):
    with pytest.raises(AttributeError):
        setattr(topology.ring(4), attribute, 5)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 201])
def test_a_name_is_one_printable_line(name):
    with pytest.raises(ValueError, match="name: expected"):
        pc.topology.Topology(2, [], name=name)
    with pytest.raises(ValueError, match="name: expected"):
        topology.TimeVarying([topology.ring(2)], name=name)


def test_drawings():
    assert pc.topology.Topology(1, [], name='a "b"').dot().startswith('graph "a \\"b\\" of 1 rank" {')
    assert topology.ring(3).dot() == (
        'graph "ring of 3 ranks" {\n  label="ring of 3 ranks"; layout=circo; node [shape=circle];\n'
        "  0;\n  1;\n  2;\n  0 -- 1;\n  0 -- 2;\n  1 -- 2;\n}\n"
    )
    assert "  4 -> 0;\n" in topology.exponential(5).dot()
    assert '  1 -> 0 [label="0.5"];\n' in topology.from_matrix([[0.5, 0.5], [0.25, 0.75]]).dot()
    assert topology.one_peer_exponential(4).dot().count("digraph") == 1  # hops of 2 of 4 go both ways


def test_two_levels_by_name():
    found, expected = topology.by_name("two-level:3", 8), topology.two_level([0, 0, 0, 1, 1, 1, 2, 2])
    assert found.matrix().tolist() == expected.matrix().tolist()
    uneven = topology.by_name("two-level:4+2+2:2", 8)
    assert edges(uneven) == edges(topology.two_level([0, 0, 0, 0, 1, 1, 2, 2], gates=2))
    for end in ("", ":", ":0", ":x", ":4:3", ":4+0", ":4:1:1"):
        with pytest.raises(ValueError, match="expected two-level:K, with K ranks per node"):
            topology.by_name(f"two-level{end}", 8)
    with pytest.raises(ValueError, match="expected nodes with 8 ranks in total, got 'two-level:4\\+2' with 6"):
        topology.by_name("two-level:4+2", 8)
