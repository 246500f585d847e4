"""What generators mix: matrices, spectral gaps, and the model's figures of docs/groups.md."""

import dataclasses
import itertools

import numpy as np
import pytest

from pycollectives import topology
from pycollectives.groups import PunctualGroups, RandomGroups, SmartGroups, StaticGroups
from pycollectives.simulation import mixing
from pycollectives.simulation.groups import simulate_groups

GENERATORS = [
    RandomGroups(),
    RandomGroups(group_buffer=False),
    SmartGroups(),
    SmartGroups(inter_intra=False),
    PunctualGroups(),
    StaticGroups(4),
]


def test_the_matrix_of_a_group():
    matrix = mixing.group_matrix([0, 3, 4], 5)
    x = np.arange(5.0)
    np.testing.assert_allclose(x @ matrix, [7 / 3, 1, 2, 7 / 3, 7 / 3])
    np.testing.assert_allclose(matrix.T @ matrix, matrix, atol=1e-12)
    graph = topology.from_matrix(matrix)
    graph.check_doubly_stochastic()
    assert not graph.is_connected
    assert mixing.spectral_gap(matrix) == pytest.approx(0)


@pytest.mark.parametrize("group", [[], [0, 0], [5], [-1, 2]])
def test_groups_that_are_none(group):
    with pytest.raises(ValueError, match="expected different workers from 0 to 4"):
        mixing.group_matrix(group, 5)


@pytest.mark.parametrize(("group_size", "size"), [(2, 5), (3, 7), (5, 5), (8, 4)])
def test_random_groups_in_closed_form(group_size, size):
    every = list(itertools.combinations(range(size), min(group_size, size)))
    np.testing.assert_allclose(mixing.random_groups_matrix(group_size, size), mixing.mean_matrix(every, size))
    gap = mixing.spectral_gap(mixing.random_groups_matrix(group_size, size))
    assert gap == pytest.approx((min(group_size, size) - 1) / (size - 1))


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@pytest.mark.parametrize(("size", "ranks_per_node"), [(1, 4), (3, 2), (4, 4), (7, 3), (16, 4)])
def test_the_expected_matrix_is_connected(generator, size, ranks_per_node):
    if isinstance(generator, StaticGroups):
        generator = StaticGroups(ranks_per_node)
    graph = topology.from_matrix(mixing.expected_matrix(generator, size, ranks_per_node))
    graph.check_doubly_stochastic()
    assert graph.is_connected
    assert mixing.spectral_gap(generator, size=size, ranks_per_node=ranks_per_node) > 0.001


def test_the_size_is_needed():
    with pytest.raises(ValueError, match="expected size="):
        mixing.spectral_gap(RandomGroups())


# ---------------------------------------------------------------------------------------------------- speed


def relative(generator, slowdown):
    allreduce = simulate_groups(None, 16, slowdown={3: slowdown}).iterations_per_s
    return simulate_groups(generator, 16, slowdown={3: slowdown}).iterations_per_s / allreduce


def test_punctual_groups_keep_their_promise():
    """One of 16 workers is 5 times slower; 5.7 is what nobody waiting for anybody would reach."""
    assert 5.5 < relative(PunctualGroups(), 5) < 5.75
    assert mixing.spectral_gap(PunctualGroups(), size=16) >= mixing.spectral_gap(SmartGroups(), size=16)


def test_inter_intra_goes_at_the_slow_worker_s_pace_on_its_node():
    steps = simulate_groups(SmartGroups(), 16, slowdown={3: 5}).iterations_of
    assert max(steps[:4]) < 1.1 * min(steps[:4]) < 0.2 * min(steps[4:])
    steps = simulate_groups(PunctualGroups(), 16, slowdown={3: 5}).iterations_of
    assert min(steps[:3]) > 5 * steps[3]


def test_nobody_waits_where_all_are_equal():
    for generator in (SmartGroups(), SmartGroups(inter_intra=False), PunctualGroups()):
        assert 0.99 < relative(generator, 0) < 1.03


@pytest.mark.parametrize("slowdown", [2, 5])
def test_the_order_of_the_generators(slowdown):
    speeds = [relative(g, slowdown) for g in (RandomGroups(), SmartGroups(), PunctualGroups())]
    assert speeds == sorted(speeds)


def test_classes_that_are_out_of_step_meet():
    slow = dict.fromkeys(range(8), 1.37)
    groups = simulate_groups(PunctualGroups(), 16, slowdown=slow, jitter=0.0).groups
    assert topology.from_matrix(mixing.mean_matrix(groups[-300:], 16)).is_connected


# ---------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RandomGroups(1), "RandomGroups: expected size >= 2, got 1"),
        (lambda: SmartGroups(seed=-1), "SmartGroups: expected seed >= 0, got -1"),
        (lambda: SmartGroups(seed=2**64), "expected 0 <= seed"),
        (lambda: SmartGroups(slowdown_threshold=0), "expected slowdown_threshold >= 1, got 0"),
        (lambda: SmartGroups(connectivity=0), "expected connectivity >= 1, got 0"),
        (lambda: SmartGroups(global_division=False), "inter_intra=True needs global_division=True"),
        (lambda: SmartGroups(group_buffer=False), "global_division=True needs group_buffer=True"),
        (lambda: PunctualGroups(tolerance=-0.1), "expected a finite tolerance >= 0"),
        (lambda: PunctualGroups(patience=float("inf")), "expected a finite patience >= 0"),
        (lambda: RandomGroups(5).check(4), "expected a size of 2 to 4, the number of workers, got 5"),
    ],
)
def test_values_out_of_range(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("make", [lambda: RandomGroups(2.5), lambda: PunctualGroups(tolerance="little")])
def test_values_of_wrong_type(make):
    with pytest.raises(TypeError, match="expected"):
        make()


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
def test_generators_are_values(generator):
    assert dataclasses.replace(generator) == generator
    assert hash(dataclasses.replace(generator)) == hash(generator)
    with pytest.raises(dataclasses.FrozenInstanceError):
        generator.kind = "other"
    generator.check(1)
    generator.check(16)
