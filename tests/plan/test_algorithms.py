"""Every registered algorithm at every number of ranks: right, race-free, and as cheap as its file says.

PYC_MOST_RANKS says up to how many, 64 by default; of those beyond 33 two are in CI, and all nightly.
"""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import nightly_unless
from plans import (
    ACTIVATIONS,
    ALGORITHMS,
    asked_to_start,
    elements_sent,
    longest_chain,
    messages,
    partial,
    reachable,
    registered,
    staged,
)

from pycollectives import _testing
from pycollectives.support.native import core

MOST_RANKS = int(os.environ.get("PYC_MOST_RANKS", "64"))
SIZES = nightly_unless(lambda size: size <= 33 or size in (47, 64), range(1, 1 + MOST_RANKS))
SEEDS = 3

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
every_size = pytest.mark.parametrize("size", SIZES)


def counts(size):
    return sorted({1, 2, size - 1, size, size + 1, 1000} - {0})


# ---------------------------------------------------------------------------------------------------- right


@every_size
@every_algorithm
def test_every_result_has_every_contribution_once(algorithm, size):
    for count in counts(size):
        plans = registered(algorithm, size, count)
        for seed in range(SEEDS):
            assert _testing.check_allreduce(plans, seed=seed) == [], f"{count} elements, order of execution {seed}"


@every_size
@every_algorithm
def test_so_has_every_partial_allreduce(algorithm, size):
    for count, activation in itertools.product((1, size + 1), ACTIVATIONS):
        plans = partial(algorithm, size, count, activation)
        for seed, starters in enumerate([[0], [size - 1], range(size)]):
            fired = asked_to_start(starters, activation)
            assert _testing.check_activation(plans, fired, seed=seed) == [], f"{activation}, by {list(starters)}"


@every_activation
@every_size
def test_a_rank_is_activated_whoever_starts(size, activation):
    plans = partial(ALGORITHMS[0], size, 1, activation)
    for starter in range(size):
        assert _testing.check_activation(plans, asked_to_start([starter], activation), seed=starter) == []


@every_activation
@pytest.mark.parametrize("size", range(1, 7))
def test_every_set_of_starters(size, activation):
    plans = partial(ALGORITHMS[0], size, 2, activation)
    for n in range(1, size + 1):
        for starters in itertools.combinations(range(size), n):
            assert _testing.check_activation(plans, asked_to_start(starters, activation), seed=n) == [], starters


@settings(deadline=None, print_blob=True, max_examples=300)
@given(data=st.data(), size=st.integers(1, 64), seed=st.integers(0, 2**32))
def test_any_starters_and_any_contributors(data, size, seed):
    algorithm = data.draw(st.sampled_from(ALGORITHMS))
    activation = data.draw(st.sampled_from(ACTIVATIONS))
    starters = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    contributors = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    count = data.draw(st.integers(1, 2 * size))
    plans = partial(algorithm, size, count, activation)
    fired = asked_to_start(starters, activation)
    assert _testing.check_partial_allreduce(plans, fired, contributors, seed=seed) == []


@every_activation
@pytest.mark.parametrize("size", [1, 2, 5, 8, 33])
def test_nobody_is_activated_before_anybody_starts(size, activation):
    assert _testing.check_activation(partial(ALGORITHMS[0], size, 3, activation), []) == []


# ------------------------------------------------------------------------------------- staged: of data on devices


@settings(deadline=None, print_blob=True, max_examples=200)
@given(data=st.data(), size=st.integers(2, 32), seed=st.integers(0, 2**32))
def test_staged_plans_are_right_however_they_are_cut(data, size, seed):
    algorithm = data.draw(st.sampled_from(ALGORITHMS))
    count = data.draw(st.integers(1, 3 * size))
    piece = data.draw(st.integers(1, count))
    contributors = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    plans = staged(algorithm, size, count, piece)
    starters = asked_to_start([data.draw(st.integers(0, size - 1))], "tree")
    assert _testing.check_partial_allreduce(plans, starters, contributors, seed=seed) == []


def reductions_of(plan):
    """What is computed of each element: of its messages the peer and what is done with them, in order."""
    values = {}

    def of(part):
        return [values.get((part.buffer, part.first + i), ("own",)) for i in range(part.count)]

    for op in plan.ops:
        if op["kind"] in ("recv", "copy", "reduce"):
            into = op["slices"][-1]
            found = of(op["slices"][0])
            for i in range(into.count):
                key = (into.buffer, into.first + i)
                if op["kind"] == "recv":
                    values[key] = ("from", op["peer"])
                elif op["kind"] == "copy":
                    values[key] = found[i]
                else:
                    values[key] = (values.get(key, ("own",)), found[i])
    return [values.get((0, i), ("own",)) for i in range(max(s.first + s.count for s in data_slices(plan)))]


def data_slices(plan):
    return [part for op in plan.ops for part in op["slices"] if part.buffer == 0]


@every_algorithm
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_staged_plans_compute_what_plans_of_the_host_do(algorithm, size):
    """In the same order for each element, so that results have the same bits."""
    count = 4 * size + 3
    for one, other in zip(partial(algorithm, size, count, "tree"), staged(algorithm, size, count, 1), strict=True):
        assert reductions_of(one) == reductions_of(other)


@every_algorithm
@pytest.mark.parametrize("size", [2, 4, 8])
def test_pieces_are_sent_while_others_are_copied(algorithm, size):
    for plan in staged(algorithm, size, 16 * size, size):
        after = reachable(plan)
        fetched = [op["id"] for op in plan.ops if op["kind"] == "copy" and op["slices"][0].buffer == 0]
        stored = [op["id"] for op in plan.ops if op["kind"] == "copy" and op["slices"][1].buffer == 0]
        assert len(fetched) == len(stored) > 1
        sends = [op["id"] for op in plan.ops if op["kind"] == "send" and op["id"] > fetched[0]]
        assert any(not any(send in after[copy] for copy in fetched[1:]) for send in sends), "all wait for all copies"
        assert sends[0] in after[fetched[0]], "the first piece to be copied is not the first to be sent"
        last = sends[-1] if algorithm != "tree" or plan.rank else None
        assert last is None or any(last not in after[copy] and copy not in after[last] for copy in stored)


@pytest.mark.parametrize(("count", "piece", "copies"), [(100, 1000, 1), (100, 50, 2), (100, 34, 2), (100, 1, 8)])
def test_pieces_have_a_least_length(count, piece, copies):
    for plan in staged("tree", 3, count, piece):
        assert sum(op["kind"] == "copy" for op in plan.ops) == 2 * copies


# ---------------------------------------------------------------------------------------------------- cheap


def log2(size):
    """Rounded down; and whether there is a rest."""
    return size.bit_length() - 1, size & (size - 1) != 0


# At most: with few extra ranks no chain of messages begins at one and ends at another.
STEPS = {
    "recursive_doubling": lambda log, rest: log + 2 * rest,
    "rabenseifner": lambda log, rest: 2 * log + 2 * rest,
}


@every_size
@pytest.mark.parametrize("algorithm", STEPS)
def test_steps(algorithm, size):
    log, rest = log2(size)
    most = STEPS[algorithm](log, rest)
    chain = longest_chain(registered(algorithm, size, size))
    assert chain <= most
    assert chain == most or (rest and chain == most - 1)


@every_size
def test_steps_of_the_ring(size):
    assert longest_chain(registered("ring", size, size)) == 2 * (size - 1)


@every_size
@pytest.mark.parametrize("algorithm", ["ring", "rabenseifner"])
def test_with_few_elements_it_is_recursive_doubling(algorithm, size):
    count = max(1, size - 1) if algorithm == "ring" else 1
    plans = registered(algorithm, size, count)
    if algorithm == "rabenseifner" or size > 1:
        assert [str(p) for p in plans] == [str(p) for p in registered("recursive_doubling", size, count)]


@every_size
@pytest.mark.parametrize("halvings", [1, 2, 3, 9])
def test_data_is_halved_as_often_as_asked_for(size, halvings):
    """Each halving takes a step more, and sends half of what is left instead of all."""
    log, rest = log2(size)
    count = 64
    plans = registered(f"rabenseifner:{halvings}", size, count)
    done = min(halvings, log, 6)
    chain = longest_chain(plans)
    assert log + done <= chain <= log + done + 2 * rest
    if not rest:
        sent = 2 * sum(count >> k for k in range(1, done + 1)) + (log - done) * (count >> done)
        assert {elements_sent(plan) for plan in plans} == {sent}


@every_size
def test_steps_of_a_tree(size):
    """A star up to 34 ranks, a binomial tree with K = 1."""
    assert longest_chain(registered("tree", size, 1)) == (0 if size == 1 else 2 if size <= 34 else 4)
    assert longest_chain(registered("tree:1", size, 1)) == 2 * max(bin(rank).count("1") for rank in range(size))


def reached_after(plans, latency):
    """The number of sends until the last rank is reached, if what is sent arrives `latency` later."""
    at = {0: 0}
    for rank in range(len(plans)):  # a rank's parent is before it
        sends = [op["peer"] for op in plans[rank].ops if op["kind"] == "send"]
        for place, child in enumerate(sends[rank != 0 :]):
            at[child] = at[rank] + place + latency
    return max(at.values())


@pytest.mark.parametrize("latency", [1, 2, 3, 5, 8, 32])
@every_size
def test_no_tree_is_sooner_in_the_postal_model(size, latency):
    """As many ranks as can be reached: each that has it sends to another one at a time."""
    reached = [1]
    while reached[-1] < size:
        reached.append(reached[-1] + (reached[-latency] if len(reached) >= latency else 0))
    assert reached_after(registered(f"tree:{latency}", size, 1), latency) == len(reached) - 1


@pytest.mark.parametrize(
    "variant", ["tree:1", "tree:3", "tree:64", "tree:2147483647", "rabenseifner:1", "rabenseifner:2", "rabenseifner:4"]
)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 32, 50])
def test_variants_are_right(variant, size):
    for count in (1, 2, 7, 64):
        assert _testing.check_allreduce(registered(variant, size, count)) == [], count
    plans = partial(variant, size, size + 1, "tree:2")
    for starters in ([0], [size - 1], range(size)):
        assert _testing.check_activation(plans, asked_to_start(starters, "tree:2")) == []


@pytest.mark.parametrize(
    "name", ["tree:", "tree:0", "tree:-1", "tree:x", "tree:1:2", "ring:2", "trees", "tree:99999999999"]
)
def test_no_such_variant(name):
    with pytest.raises(ValueError, match="no allreduce algorithm"):
        core.plan_allreduce(name, 0, 4, 4)


@pytest.mark.parametrize("name", ["", "tree:", "tree:0", "tree:x", "trees", "dissemination:2"])
def test_no_such_activation(name):
    with pytest.raises(ValueError, match="expected 'dissemination', 'tree' or 'tree:K'"):
        core.plan_partial_allreduce("ring", 0, 4, 4, name)


def is_extra(rank, size):
    """With e ranks more than a power of two, the odd ones of the first 2 e fold onto the even ones."""
    rest = size - (1 << log2(size)[0])
    return rank < 2 * rest and rank % 2 == 1


def has_extra(rank, size):
    return rank + 1 < size and is_extra(rank + 1, size)


@every_size
def test_bytes_of_recursive_doubling(size):
    log = log2(size)[0]
    for rank, plan in enumerate(registered("recursive_doubling", size, 10)):
        assert elements_sent(plan) == 10 * (1 if is_extra(rank, size) else log + has_extra(rank, size))


@every_size
def test_bytes_of_the_ring(size):
    for plan in registered("ring", size, 10 * size):
        assert elements_sent(plan) == 2 * 10 * size * (size - 1) // size


@every_size
def test_bytes_of_rabenseifner(size):
    core_size = 1 << log2(size)[0]
    count = 10 * core_size
    for rank, plan in enumerate(registered("rabenseifner", size, count)):
        sent = 2 * count * (core_size - 1) // core_size
        assert elements_sent(plan) == (count if is_extra(rank, size) else sent + count * has_extra(rank, size))


@every_size
def test_bytes_and_messages_of_the_tree(size):
    """Every rank but the root is somebody's child: as few messages as there can be."""
    plans = registered("tree", size, 10)
    assert len(messages(plans)) == 2 * (size - 1)
    for rank, plan in enumerate(plans):
        children = sum(op["kind"] == "recv" for op in plan.ops) - (rank != 0)
        assert elements_sent(plan) == 10 * (children + (rank != 0))


@every_size
@pytest.mark.parametrize("algorithm", ["ring", "rabenseifner"])
def test_bytes_are_balanced_when_parts_cannot_be_equal(algorithm, size):
    parts = size if algorithm == "ring" else 1 << log2(size)[0]
    for rank, plan in enumerate(registered(algorithm, size, 1000)):
        if algorithm == "ring" or not is_extra(rank, size):
            sent = elements_sent(plan) - 1000 * (algorithm != "ring" and has_extra(rank, size))
            assert abs(sent - 2 * 1000 * (parts - 1) / parts) <= parts


def is_token(op):
    return op["kind"] in ("send", "recv") and op["name"] and op["slices"][0].buffer != 0 and op["slices"][0].count == 1


@every_size
def test_activation_by_dissemination_takes_log_p_steps_from_anywhere(size):
    plans = partial("ring", size, 2 * size, "dissemination")
    rounds = (size - 1).bit_length()
    activates = []
    for plan in plans:
        tokens = [op for op in plan.ops if is_token(op)]
        activates.append([op["peer"] for op in tokens if op["kind"] == "send"])
        assert len(activates[-1]) == len(tokens) - len(activates[-1]) == rounds
    for starter in range(size):
        active, steps = {starter}, 0
        while len(active) < size:
            active |= {peer for rank in active for peer in activates[rank]}
            steps += 1
        assert steps <= rounds


@every_size
def test_activation_by_a_tree_takes_a_token_per_rank(size):
    plans = partial("ring", size, 2 * size, "tree")
    active, steps = {0}, 0
    activates = [[op["peer"] for op in plan.ops if is_token(op) and op["kind"] == "send"] for plan in plans]
    assert sum(map(len, activates)) == size - 1
    while len(active) < size:
        active |= {peer for rank in active for peer in activates[rank]}
        steps += 1
    assert steps <= (1 if size <= 34 else 2)
