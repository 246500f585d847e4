"""The static rule of Ripples (Figs 9 and 10), free of conflicts for every number of nodes and workers."""

import pytest

from pycollectives.groups import StaticGroups

# Fig. 9, with the node's number in place of the group's index; "-" does not synchronise.
FIG_9 = """
    heads -  n0 n0  heads -  n1 n1  heads -  n2 n2  heads -  n3 n3
    n0    n0 n0 n0  n1    n1 n1 n1  n2    n2 n2 n2  n3    n3 n3 n3
    n0    x  -  n0  n1    y  -  n1  n2    x  -  n2  n3    y  -  n3
    n0    n0 n0 n0  n1    n1 n1 n1  n2    n2 n2 n2  n3    n3 n3 n3
"""


def test_fig_9():
    rule = StaticGroups(4)
    for phase, row in enumerate(FIG_9.split("\n")[1:-1]):
        cells = row.split()
        for step in (phase, phase + 4, phase + 44):
            for rank, cell in enumerate(cells):
                together = (rank,) if cell == "-" else tuple(r for r in range(16) if cells[r] == cell)
                assert rule.group_of(rank, step, 16) == together


@pytest.mark.parametrize("per_node", [*range(1, 12), 64])
def test_free_of_conflicts(per_node):
    rule = StaticGroups(per_node)
    for size in [*range(1, 41), 64, 100]:
        for step in range(24):
            groups = [rule.group_of(rank, step, size) for rank in range(size)]
            for rank, group in enumerate(groups):
                assert rank in group
                assert list(group) == sorted(set(group))
                assert all(groups[member] == group for member in group)


@pytest.mark.parametrize(
    ("per_node", "size", "groups"),
    [
        (1, 4, [(0, 1, 2, 3), None, ((0, 2), (1, 3)), None]),
        (2, 4, [(0, 2), ((0, 1), (2, 3)), (1, 3), ((0, 1), (2, 3))]),
        (3, 6, [(0, 3), ((0, 1, 2), (3, 4, 5)), ((0, 2), (1, 4), (3, 5)), ((0, 1, 2), (3, 4, 5))]),
        (5, 5, [(2, 3, 4), (0, 1, 2, 3, 4), ((0, 4), (2, 3)), (0, 1, 2, 3, 4)]),
        (7, 7, [((2, 3), (4, 5, 6)), tuple(range(7)), ((0, 6), (2, 3), (4, 5)), tuple(range(7))]),
        (4, 6, [((0, 4), (2, 3)), ((0, 1, 2, 3), (4, 5)), ((0, 3), (1, 5)), ((0, 1, 2, 3), (4, 5))]),
        (4, 5, [((0, 4), (2, 3)), (0, 1, 2, 3), ((0, 3), (1, 4)), (0, 1, 2, 3)]),
    ],
)
def test_other_shapes(per_node, size, groups):
    rule = StaticGroups(per_node)
    for step, expected in enumerate(groups):
        expected = () if expected is None else expected if isinstance(expected[0], tuple) else (expected,)
        got = {rule.group_of(rank, step, size) for rank in range(size)}
        assert {group for group in got if len(group) > 1} == set(expected)


def test_of_an_odd_number_of_nodes_another_one_is_odd_each_cycle():
    rule = StaticGroups(2)
    odd = [next(g for g in rule.groups(4 * cycle + 2, 10) if len(g) == 3) for cycle in range(5)]
    assert len(set(odd)) == 5


def test_a_step_s_groups_are_a_partition():
    assert StaticGroups(4).groups(0, 8) == [(0, 4), (1,), (2, 3), (5,), (6, 7)]


@pytest.mark.parametrize(("rank", "step"), [(-1, 0), (16, 0), (0, -1)])
def test_refused(rank, step):
    with pytest.raises(ValueError, match="expected"):
        StaticGroups(4).group_of(rank, step, 16)


def test_refused_ranks_per_node():
    with pytest.raises(ValueError, match="expected ranks_per_node >= 1, got 0"):
        StaticGroups(0)
