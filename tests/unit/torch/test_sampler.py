"""Batches that ranks take from one counter."""

from __future__ import annotations

import time
from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
DATA = TensorDataset(torch.arange(50))


def examples_of(loader):
    return [int(example) for (batch,) in loader for example in batch]


def test_each_example_is_taken_once_in_each_epoch():
    def program(comm):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=8, seed=3, timeout=LIMIT)
        assert sampler.batches_per_epoch == 7
        return [examples_of(DataLoader(DATA, batch_sampler=sampler)) for _ in range(4)]

    by_rank = run_ranks(3, program)
    epochs = [list(chain.from_iterable(of_epoch)) for of_epoch in zip(*by_rank, strict=True)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(50))] * 4


def test_epochs_have_different_orders_and_a_rank_alone_repeats_them():
    def program(comm, **options):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=8, **options)
        return [list(sampler) for _ in range(2)]

    first, second = run_ranks(1, program)[0]
    assert first != second
    assert run_ranks(1, program)[0] == [first, second]
    other = run_ranks(1, lambda comm: program(comm, seed=1))[0]
    assert other[0] == second, "the order of an epoch is that of seed + epoch"
    plain = run_ranks(1, lambda comm: program(comm, shuffle=False, drop_last=True))[0]
    assert plain == [[list(range(k, k + 8)) for k in range(0, 48, 8)]] * 2


def test_a_fast_rank_takes_more():
    def program(comm):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=1)
        taken = 0
        for _ in sampler:
            taken += 1
            time.sleep(0.05 if comm.rank == 0 else 0.002)
        return taken

    slow, fast = run_ranks(2, program)
    assert slow + fast == 50
    assert fast > slow


@pytest.mark.parametrize(("epoch", "taken_later"), [(0, [0, 0, 0, 1]), (3, [1, 2])])
def test_an_epoch_that_others_have_taken_whole_is_empty(epoch, taken_later):
    """A rank that joins later sets its epoch."""

    def program(comm):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=25)
        if comm.rank == 0:
            taken = [len(list(sampler)) for _ in range(3)]
            comm.mean(0.0, timeout=LIMIT)
            return taken
        comm.mean(0.0, timeout=LIMIT)
        sampler.set_epoch(epoch)
        return [len(list(sampler)) for _ in taken_later]

    assert run_ranks(2, program) == [[2, 2, 2], taken_later]


def test_an_iteration_that_was_broken_off_continues():
    def program(comm):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=10)
        begun = []
        for batch in sampler:
            begun.append(batch)
            if len(begun) == 2:
                break
        assert sampler.epoch == 0
        whole = begun + list(sampler)
        assert sorted(chain.from_iterable(whole)) == list(range(50))
        assert sampler.epoch == 1

    run_ranks(1, program)


def test_it_continues_where_a_state_says():
    def program(comm):
        sampler = pc.torch.SharedSampler(DATA, comm, batch_size=10)
        batches = iter(sampler)
        begun = [next(batches), next(batches)]
        in_epoch = sampler.state_dict()
        rest = list(batches)
        between = sampler.state_dict()
        second = list(sampler)
        later = pc.torch.SharedSampler(DATA, comm, batch_size=10, state=in_epoch)
        assert (len(begun), later.epoch) == (2, 0)
        assert (list(later), list(later)) == (rest, second)
        later = pc.torch.SharedSampler(DATA, comm, batch_size=10, state=between)
        assert (later.epoch, list(later)) == (1, second)

    run_ranks(1, program)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"batch_size": 51, "drop_last": True}, "batch_size: with drop_last, expected at most 50, the number"),
        ({"batch_size": 8, "seed": -1}, "seed: expected at least 0"),
        ({"batch_size": 8, "seed": 1 << 64}, "seed: expected at most"),
        ({"batch_size": 8, "shuffle": "False"}, "shuffle: expected True or False"),
        ({"batch_size": 8, "state": {}}, "state: expected the result of state_dict"),
        ({"batch_size": 8, "state": 5}, "state: expected the result of state_dict"),
    ],
)
def test_arguments_that_are_refused(options, text):
    def program(comm):
        expected = (ValueError, TypeError) if comm.rank == 0 else pc.MismatchError
        with pytest.raises(expected, match=text):
            pc.torch.SharedSampler(DATA, comm, **(options if comm.rank == 0 else {"batch_size": 8}))

    run_ranks(2, program)


def test_arguments_are_compared():
    def program(comm):
        with pytest.raises(pc.MismatchError, match="SharedSampler: arguments differ: batch_size: 8 on rank 0, 9 on"):
            pc.torch.SharedSampler(DATA, comm, batch_size=8 + comm.rank)
        state = pc.torch.SharedSampler(DATA, comm, batch_size=8).state_dict()
        with pytest.raises(ValueError, match="state: expected the state of a sampler with batch_size 9, got 8"):
            pc.torch.SharedSampler(DATA, comm, batch_size=9, state=state)

    run_ranks(2, program)
