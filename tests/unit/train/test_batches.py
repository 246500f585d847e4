"""Which examples each rank takes in which step, and the loads, which may depend on them."""

import numpy as np
import pytest

from pycollectives.train.batches import Batches, of_similar_length
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.job import Plan
from pycollectives.train.registry import Choice
from pycollectives.train.settings import Settings
from pycollectives.train.workload import workload_of


def dataset(examples, lengths=None):
    return Dataset((np.arange(examples),), (np.zeros(1),), lengths=lengths)


def test_an_epoch_has_each_example_once_over_ranks_and_steps():
    shares = [Batches(dataset(26), 8, rank=rank, ranks=4, seed=3) for rank in range(4)]
    assert shares[0].steps_per_epoch == 3
    for epoch in range(2):
        taken = [share(epoch * 3 + step)[0] for step in range(3) for share in shares]
        assert all(len(one) == 2 for one in taken)
        assert len(np.unique(np.concatenate(taken))) == 24
    assert not np.array_equal(shares[0](0)[0], shares[0](3)[0])


@pytest.mark.parametrize("lengths", [None, np.arange(1, 65)])
def test_fewer_ranks_take_the_examples_of_all(lengths):
    """Each example is in one share of a step, and shares differ by one example at most."""
    share = Batches(dataset(64, lengths), 32, rank=2, ranks=4, seed=3)
    all_of = np.concatenate([share.among(rank=rank, ranks=4)(1)[0] for rank in range(4)])
    for ranks in (3, 2, 1):
        dealt = [share.among(rank=rank, ranks=ranks)(1)[0] for rank in range(ranks)]
        np.testing.assert_array_equal(np.concatenate(dealt), all_of)
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_a_step_has_the_same_examples_whatever_came_before():
    once, again = (Batches(dataset(64), 8, rank=1, ranks=2, seed=3) for _ in range(2))
    steps = [once(number)[0] for number in range(20)]
    np.testing.assert_array_equal(again(17)[0], steps[17])
    np.testing.assert_array_equal(again(2)[0], steps[2])


@pytest.mark.parametrize("batch", [0, 2, 6, 68])
def test_batches_that_cannot_be_shared_are_refused(batch):
    with pytest.raises(ValueError, match="batch: expected a multiple of 4, the number of ranks"):
        Batches(dataset(64), batch, rank=0, ranks=4, seed=0)


@pytest.mark.parametrize(("ranks", "batch"), [(1, 64), (2, 64), (3, 66), (5, 65), (6, 66), (7, 70), (64, 64), (80, 80)])
def test_the_default_batch_can_be_shared_by_any_number_of_ranks(ranks, batch):
    plan = Plan.of(Settings.of({"data": "hyperplane,dimensions=2,points=192"}), rank=ranks - 1, ranks=ranks)
    assert plan.batches.batch == batch
    assert len(plan.batches(0)[0]) == batch / ranks


def test_examples_of_a_batch_have_similar_lengths_and_work_is_the_longest():
    lengths = np.random.default_rng(0).integers(1, 1000, 256)
    shares = [Batches(dataset(256, lengths), 32, rank=rank, ranks=4, seed=3) for rank in range(4)]
    work = shares[0].work(16)
    assert work.shape == (4, 16)
    assert work.mean() == pytest.approx(1)
    longest = np.array([[lengths[share(step)[0]].max() for step in range(16)] for share in shares])
    np.testing.assert_allclose(work, longest / longest.mean())
    assert len(np.unique(np.concatenate([share(step)[0] for step in range(8) for share in shares]))) == 256


def test_buckets_are_of_similar_length_and_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 1000, 992)
    batches = of_similar_length(lengths, np.arange(992), 16, np.random.default_rng(1))
    assert batches.shape == (62, 16)
    assert len(np.unique(batches)) == 992
    assert np.ptp(lengths[batches], axis=1).max() < 50
    assert {-1.0, 1.0} == set(np.sign(np.diff(lengths[batches].max(axis=1))))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("odd", "load: expected one of equal, .*, trace, length; got 'odd'"),
        ("one-late,late=all", "load 'one-late': late: expected a number, got 'all'"),
        ("lognormal,work_ms=1,seed=1.5", r"load 'lognormal': seed: expected a whole number >= 0, got 1\.5"),
        ("lognormal,work_ms=1,seed=-1", "load 'lognormal': seed: expected a whole number >= 0, got -1"),
        ("equal,ranks=2", "load 'equal': unknown option 'ranks'"),
        ("one-late,late=true", "load 'one-late': late: expected a number, got True"),
        ("equal,work=inf", r"load equal,work=inf: expected finite times >= 0, got inf to inf seconds"),
        ("equal,work=nan", "load: expected work >= 0"),
        ("trace,file=2024", r"load 'trace': file: expected a word .*, got 2024"),
        ("trace", "load 'trace': needs the option 'file'"),
        ("length", "load 'length': expected data whose examples have lengths"),
    ],
)
def test_loads_refused(said, text):
    with pytest.raises(ValueError, match=text):
        workload_of(Choice.parse(said), Batches(dataset(8), 8, rank=0, ranks=1, seed=0), ranks=1, steps=1, seed=0)


def test_a_load_of_negative_times_is_refused():
    batches = Batches(dataset(8, lengths=np.arange(1, 9)), 8, rank=0, ranks=1, seed=0)
    with pytest.raises(ValueError, match=r"load length,work=-0\.005: expected finite times >= 0"):
        workload_of(Choice.parse("length,work_ms=-5"), batches, ranks=1, steps=1, seed=0)


def test_a_load_has_the_seed_of_the_training_or_its_own():
    def drawn(said, seed):
        batches = Batches(dataset(8), 8, rank=0, ranks=2, seed=0)
        return workload_of(Choice.parse(said), batches, ranks=2, steps=3, seed=seed).tolist()

    assert drawn("lognormal,work_ms=1,skew_ms=1,seed=3", 7) == drawn("lognormal,work_ms=1,skew_ms=1", 3)
    assert drawn("lognormal,work_ms=1,skew_ms=1", 7) != drawn("lognormal,work_ms=1,skew_ms=1", 3)
