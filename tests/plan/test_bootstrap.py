"""How ranks agree and end: engines in virtual time, in random delivery orders, with every message counted.

The simulator itself raises an error if a message comes to a rank that has closed, or if a text handed down to a node
is not the one that was given.
"""

from math import ceil, log2

import numpy as np
import pytest

from pycollectives import _testing

SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64]
NETWORKS = {
    "ideal": {},
    "in any order": {"jitter": 0.5},
    "slow": {"latency": 5.0, "jitter": 20.0},
    "fast": {"latency": 1e-6, "jitter": 1e-5},
}


def run(size, texts, **options):
    return _testing.simulate_bootstrap(size=size, texts=[[text.encode() for text in each] for each in texts], **options)


def found(size, texts, **options):
    """What all ranks found alike, for each comparison; everything else that must hold is checked."""
    outcome = run(size, texts, **options)
    assert not outcome["premature"]
    assert all(outcome["closed"])
    for each in outcome["comparisons"]:
        assert all(rank == each[0] for rank in each)
    return [None if each[0] is None else [text.decode() for text in each[0]] for each in outcome["comparisons"]]


def expected(texts):
    return [None if len(set(each)) == 1 else each for each in texts]


# ---- how many messages


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 13, 16, 32, 33, 64, 100, 128, 256, 511, 512, 1000, 1024])
def test_messages_of_a_creation(size):
    """Arguments and memory are compared, each by as many messages up as down; texts of any length cost none."""
    outcome = run(size, [["x" * 4096] * size, [""] * size], closes=False, jitter=0.5)
    most = 4 * ceil(log2(size))
    assert max(np.add(outcome["sent"], outcome["received"])) <= most
    assert sum(outcome["sent"]) == sum(outcome["received"]) == 4 * (size - 1)


@pytest.mark.parametrize("size", [2, 3, 8, 13, 64, 100, 1024])
@pytest.mark.parametrize("ranks_per_node", [2, 4, 1024])
def test_messages_of_a_creation_in_shared_memory(size, ranks_per_node):
    """Within a node the handle of the memory is handed down besides; here before each of the two comparisons."""
    outcome = run(size, [["arguments"] * size, [""] * size], ranks_per_node=ranks_per_node, closes=False, jitter=0.5)
    assert max(outcome["sent"]) <= 4 * ceil(log2(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13, 16, 33, 64, 100, 128, 511, 1024])
def test_messages_of_the_end(size):
    """One each way along each edge to say that a rank leaves, one up and one down to learn that all have closed, and if
    nothing is on its way the same to count.
    """
    outcome = run(size, [], jitter=0.5)
    assert all(outcome["closed"])
    assert max(outcome["sent_to_close"]) <= 3 * ceil(log2(size))
    assert sum(outcome["sent_to_close"]) == 6 * (size - 1)


@pytest.mark.parametrize("size", [8, 64])
def test_texts_of_neighbours_travel_as_one(size):
    """One rank that differs costs a few messages more per rank, not the texts of all."""
    texts = ["x" * 4096] * size
    texts[size // 2 + 1] = "y"
    outcome = run(size, [texts], closes=False)
    pieces = ceil(2 * (4096 + 12) / 900) + 1
    assert max(outcome["sent"]) <= (2 + 2 * pieces) * ceil(log2(size))


# ---- what ranks find


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_finds_the_same(size, network):
    """Of several comparisons one after the other, whatever the order of delivery, and however late ranks come."""
    random = np.random.default_rng(size)
    for seed in range(10):
        texts = []
        for _ in range(4):
            values = random.integers(0, random.choice([1, 2, size + 1]), size)
            texts.append([f"count: {value}" for value in values])
        options = NETWORKS[network] | {"seed": seed, "pause": float(random.choice([0.0, 1.0, 100.0]))}
        assert found(size, texts, **options) == expected(texts)


@pytest.mark.parametrize("size", [2, 3, 8, 13])
def test_a_mismatch_at_any_rank(size):
    for rank in range(size):
        texts = ["alike"] * size
        texts[rank] = f"refused on {rank}"
        assert found(size, [texts, ["next"] * size], jitter=0.5, seed=rank) == [texts, None]


@pytest.mark.parametrize("size", [2, 5, 16])
def test_texts_of_any_length(size):
    """Empty ones, and those that fill one message, or several, to the last byte; an engine adds four bytes."""
    for length in (0, 1, 975, 976, 977, 979, 980, 981, 987, 988, 989, 991, 992, 993, 1980, 1984, 4095, 4096):
        texts = ["x" * length] * (size - 1) + ["y" * min(length + 1, 4096)]
        assert found(size, [texts, texts[::-1]], jitter=0.5) == [texts, texts[::-1]]


@pytest.mark.parametrize("ranks_per_node", [2, 3, 8, 100])
@pytest.mark.parametrize("size", [2, 5, 8, 33])
def test_texts_handed_down_within_nodes(size, ranks_per_node):
    """A rank may be at the comparison that follows while another has not come to the text handed down.

    That may be empty: who could not make what it is to hand down.
    """
    for seed in range(20):
        handles = [f"handle {rank // ranks_per_node}" for rank in range(size)]
        texts = [handles, [""] * size, ["x" * 3000] * size]
        options = {"ranks_per_node": ranks_per_node, "jitter": 3.0, "seed": seed}
        assert found(size, texts, **options) == expected(texts)


# ---- the end


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_nobody_closes_while_a_message_is_on_its_way(size, network):
    for seed in range(20):
        outcome = run(size, [["x"] * size], strays=[0, 1, size, 10 * size][seed % 4], seed=seed, **NETWORKS[network])
        assert all(outcome["closed"])


# ---- ranks that wait no longer


@pytest.mark.parametrize("ranks_per_node", [1, 3])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_a_comparison_is_complete_on_all_ranks_or_on_none(size, network, ranks_per_node):
    """However close to the verdict a rank withdraws: the root decides alone."""
    ends = set()
    for seed in range(20):
        options = NETWORKS[network] | {"ranks_per_node": ranks_per_node, "seed": seed}
        patience = [0.5, 2.0, 10.0, 40.0][seed % 4] * (1 + options.get("latency", 0) + options.get("jitter", 0))
        outcome = run(size, [["x"] * size] * 8, patience=patience, closes=False, **options)
        completed = [[end is None for end in each] for each in outcome["comparisons"]]
        assert all(len(set(each)) == 1 for each in completed)
        assert [any(each) for each in completed] == sorted((any(each) for each in completed), reverse=True)
        ends.add(all(outcome["withdrew"]))
        assert any(outcome["withdrew"]) == (not all(completed[-1]))
    assert True in ends or size == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_late_root_does_not_decide_against_ranks_that_gave_up(size):
    """Where ranks are driven in their calls only, the root learns of them no earlier than of their arrival."""
    ends = set()
    for seed in range(40):
        patience = [10.0, 100.0, 1000.0, 1e5][seed % 4]
        options = {"patience": patience, "answer_time": 20.0, "driven_in_calls": True, "pause": 60.0, "jitter": 0.5}
        outcome = run(size, [["x"] * size] * 4, closes=False, seed=seed, **options)
        completed = [[end is None for end in each] for each in outcome["comparisons"]]
        assert all(len(set(each)) == 1 for each in completed)
        ends.add(all(completed[-1]))
    assert ends == {True, False} or size == 1
