"""What ranks promise each other: no gradient is lost, and nobody waits for ever, whoever is late in what."""

from __future__ import annotations

import collections
import contextlib
import random
import re
import threading
import time
import warnings
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from eager import LIMIT, backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402


def play(comm, policy, seed, *, steps=12, missed="sum", buckets=4, sync_every=None, flushes=0):
    """Train with integer gradients and sleeps drawn from a seed; the sum of this rank's gradients, and parameters."""
    draw = random.Random(seed * 1009 + comm.rank)
    parameters = weights(*range(1, buckets + 1))
    total = 0.0
    options = {"missed": missed, "bucket_bytes": 1, "sync_every": sync_every}
    with eager(sgd(parameters, lr=1.0), comm, policy, **options) as optimizer:
        for step in range(steps):
            optimizer.zero_grad()
            gradient = float(draw.randint(-9, 9) * comm.size)  # whole numbers, also of the mean
            for parameter in draw.sample(parameters, len(parameters)):
                if draw.random() < 0.3:
                    time.sleep(draw.random() * 3e-3)
                backward([parameter], gradient)
            optimizer.step()
            total += gradient
            if flushes and step % (steps // flushes) == 0:
                optimizer.flush()
    return total, values(parameters), optimizer.closed


POLICIES = [
    pc.Solo(),
    pc.Majority(seed=7),
    pc.Quorum(2),
    pc.Quorum(2, grace=1e-3),
    pc.policies.AnyOf(2, seed=7),
    pc.policies.AllOf(2, seed=7),
    pc.Full(),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
def test_with_missed_sum_no_gradient_is_lost_or_applied_twice(policy, ranks_per_node):
    """Nor do ranks wait for each other in different buckets for ever."""
    outcomes = ranks(3, lambda comm: play(comm, policy, seed=1, flushes=2), ranks_per_node=ranks_per_node)
    expected = -sum(total for total, _, _ in outcomes) / 3
    assert [parameters for _, parameters, _ in outcomes] == [[{expected}] * 4] * 3


STARTED_BY = {(2, 2, 0): 59, (2, 2, 1): 14, (2, 1, 1): 24, (2, 0, 0): 3}
"""Of three ranks, those that start rounds 0, 1 and 2 under `Majority`, and the seed that makes it so."""


def in_lockstep(script, starters, ranks_per_node):
    """Let three ranks play a script, with one bucket for each of `starters`; the parameters of each rank.

    Buckets have policies of their own, for what otherwise happens after rounds of buckets have drifted apart.
    """

    class OnePolicyPerBucket(EagerOptimizer):
        def _make_mean(self, name, like):
            policy = pc.Majority(seed=STARTED_BY[starters[len(self._gradients.buckets)]])
            self._arguments = replace(self._arguments, policy=policy)
            return super()._make_mean(name, like)

    happened = collections.defaultdict(threading.Event)

    def after(event):
        assert happened[event].wait(LIMIT), event

    def program(comm):
        parameters = weights(*[1] * len(starters))
        with OnePolicyPerBucket(sgd(parameters), comm, bucket_bytes=1, missed="sum", timeout=5.0) as optimizer:
            of_bucket = [bucket.parameters[0] for bucket in optimizer._gradients.buckets]

            def contribute(*buckets):
                for number in buckets:
                    backward([of_bucket[number]], 3.0)

            def step():
                optimizer.step()
                optimizer.zero_grad()

            script(comm.rank, contribute, step, after, lambda event: happened[event].set())
        return values(parameters)

    return ranks(3, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_ranks_that_are_late_in_different_buckets_do_not_wait_for_each_other(ranks_per_node):
    """In their second steps rank 0 is late in x, where it is needed, and waits in z; rank 1 the other way round."""
    x, z = 0, 1

    def script(rank, contribute, step, after, say):
        if rank == 2:
            after("0 is in x")
            after("1 is in z")
            for _ in range(2):
                contribute(x, z)
                step()
            say("2 has stepped twice")
            return
        contribute(x if rank == 0 else z)
        say("0 is in x" if rank == 0 else "1 is in z")
        after("2 has stepped twice")
        contribute(z if rank == 0 else x)
        step()
        say(f"{rank} has stepped")
        after(f"{1 - rank} has stepped")
        contribute(x, z)
        step()

    # Each rank has contributed a mean of 1 twice.
    assert in_lockstep(script, [(2, 2, 0), (2, 2, 1)], ranks_per_node) == [[{-6.0}] * 2] * 3


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_round_after_that_of_an_earlier_arrival_is_not_waited_for(ranks_per_node):
    """Rank 0 has arrived again in x and rank 1 in z when their second steps begin; then both rounds complete.

    In the rounds after, rank 0 is needed in z and rank 1 in x.
    """
    x, z, u = 0, 1, 2

    def script(rank, contribute, step, after, say):
        if rank == 0:
            after("x 0")
            contribute(z, x, u)
            say("0 is in z")
            step()
            say("0 has stepped")
            after("1 has stepped")
            contribute(z)
            say("z 1")
            after("x 1")
            contribute(x, u)
        elif rank == 1:
            contribute(x)
            say("1 is in x")
            after("z 0")
            contribute(z, u)
            say("1 is in u")
            step()
            say("1 has stepped")
            after("0 has stepped")
            contribute(x)
            say("x 1")
            after("z 1")
            contribute(z, u)
        else:
            after("1 is in x")
            contribute(x)
            say("x 0")
            after("0 is in z")
            time.sleep(0.2)  # rank 0 waits for it
            contribute(z)
            say("z 0")
            after("1 is in u")
            time.sleep(0.2)  # rank 1 waits for it
            contribute(u)
            step()
            after("x 1")
            after("z 1")
            contribute(x, z, u)
        step()

    assert in_lockstep(script, [(2, 1, 1), (2, 0, 0), (2, 2, 0)], ranks_per_node) == [[{-6.0}] * 3] * 3


def test_ranks_may_make_different_numbers_of_steps():
    def program(comm):
        return play(comm, pc.Majority(seed=3), seed=2, steps=4 + 3 * comm.rank)

    outcomes = ranks(4, program)
    expected = -sum(total for total, _, _ in outcomes) / 4
    assert [parameters for _, parameters, _ in outcomes] == [[{expected}] * 4] * 4


def test_synchronized_parameters_are_the_same_bits():
    def program(comm):
        draw = random.Random(comm.rank)
        parameters = weights(3, 2, dtype=torch.float32)
        optimizer = eager(torch.optim.Adam(parameters), comm, pc.Solo(), bucket_bytes=1, sync_every=5)
        with optimizer:
            same = []
            for _ in range(10):
                optimizer.zero_grad()
                backward(parameters, draw.gauss(0.0, 1.0))
                time.sleep(1e-3 * draw.random())
                optimizer.step()
                if optimizer._steps % 5 == 0:
                    same.append(all(comm.is_same_on_all_ranks(tensor.detach().numpy()) for tensor in parameters))
            return same

    assert ranks(3, program) == [[True, True]] * 3


@pytest.mark.parametrize("leaves", ["after fewer steps", "by an exception"])
def test_a_rank_that_has_left_is_no_part_of_a_synchronization(leaves):
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), sync_every=3, name="SGD") as optimizer:
            for step in range(6):
                if comm.rank == 1 and step == 4:
                    if leaves == "by an exception":
                        raise KeyError
                    break
                optimizer.zero_grad()
                backward(parameters, 1.0)
                optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error, _ = ranks(2, program, return_exceptions=True)
    assert isinstance(error, pc.ClosedError)
    assert re.match(
        r"SGD: parameters cannot be .* fewer steps than other ranks; .*rank 1 left the communicator",
        str(error),
    )
    assert error.__suppress_context__


def step_one_late(comm, parameters, optimizer):
    """Rank 0 steps with gradients of 2, rank 1 then with 4: too late, it is given rank 0's, and owes its own."""
    comm.is_same_on_all_ranks(b"begin")
    if comm.rank == 0:
        backward(parameters, 2.0)
        optimizer.step()
    comm.is_same_on_all_ranks(b"rank 0 has stepped")
    if comm.rank == 1:
        backward(parameters, 4.0)
        optimizer.step()


def test_flush_applies_what_is_owed_and_nothing_if_nothing_is():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters, momentum=0.5), comm, pc.Solo()) as optimizer:
            step_one_late(comm, parameters, optimizer)
            before = parameters[0].grad
            optimizer.flush()
            after = values(parameters)
            assert parameters[0].grad is before
            assert values([before]) == [{1.0}]
            optimizer.flush()
            assert values(parameters) == after
        return after

    # Each applies rank 0's mean, 1, and then rank 1's, 2, with the momentum of the first.
    assert ranks(2, program) == [[{-1.0 - 2.5}]] * 2


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("call", ["flush", "synchronize_parameters", "add_unfrozen"])
def test_gradients_that_are_accumulated_outlive_a_flush(call, overlap):
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), missed="sum", overlap=overlap) as optimizer:
            step_one_late(comm, parameters, optimizer)
            optimizer.zero_grad(set_to_none=False)  # gradients stay views of the bucket
            with optimizer.no_sync():
                backward(parameters, 6.0)
            getattr(optimizer, call)()
            assert values(parameters) == [{-3.0}]
            assert values([parameters[0].grad]) == [{6.0}]
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-9.0}]] * 2


def test_gradients_that_are_accumulated_stay_when_it_closes():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            for _ in range(2):
                optimizer.zero_grad()
                with optimizer.no_sync():
                    backward(parameters, 1.0)
        return values(parameters), values([parameters[0].grad])

    assert ranks(2, program) == [([{0.0}], [{1.0}])] * 2


@pytest.mark.parametrize("drops", [True, False])
def test_gradients_that_are_accumulated_outlive_a_stalled_flush(drops):
    """None may come meanwhile; `zero_grad` drops those that are there."""

    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, overlap=False) as optimizer:
            backward(parameters, 1.0)
            if comm.rank == 0:
                optimizer._timeout = 0.3
                with pytest.raises(pc.StallError):
                    optimizer.flush()
                with pytest.raises(RuntimeError, match=r"call flush\(\) again"), optimizer.no_sync():
                    backward(parameters, 8.0)
                if drops:
                    optimizer.zero_grad()
            comm.is_same_on_all_ranks(b"rank 0 has stalled")
            optimizer._timeout = LIMIT
            optimizer.flush()
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-0.5 if drops else -1.0}]] * 2


def test_a_stalled_step_and_a_stalled_flush_go_on():
    def program(comm):
        parameters = weights(2, 2)
        with EagerOptimizer(sgd(parameters), comm, pc.Full(), timeout=LIMIT, bucket_bytes=1) as optimizer:
            optimizer._timeout = 0.3  # it has been created
            if comm.rank == 0:
                backward(parameters, 1.0)
                with pytest.raises(pc.StallError):
                    optimizer.step()
                comm.is_same_on_all_ranks(b"rank 0 has stalled")
                optimizer._timeout = LIMIT
                optimizer.step()
                optimizer._timeout = 0.3
                with pytest.raises(pc.StallError):
                    optimizer.flush()
            else:
                comm.is_same_on_all_ranks(b"rank 0 has stalled")
                optimizer._timeout = LIMIT
                backward(parameters, 1.0)
                optimizer.step()
            comm.is_same_on_all_ranks(b"rank 0 has stalled twice")
            optimizer._timeout = LIMIT
            optimizer.flush()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}, {-1.0}]] * 2


@pytest.mark.parametrize("optimizers", [1, 2])
def test_a_flush_that_stalls_part_way_goes_on_where_it_was(optimizers):
    """Of two buckets, of one optimizer or of two that are flushed together, the first is through at once."""

    def program(comm):
        parameters = weights(2, 2)
        options = {"bucket_bytes": 1, "max_staleness": 4, "timeout": 5.0}
        with contextlib.ExitStack() as stack:
            every = [
                stack.enter_context(EagerOptimizer(sgd(parameters[place::optimizers]), comm, pc.Solo(), **options))
                for place in range(optimizers)
            ]

            def step():
                backward(parameters, 2.0)
                for optimizer in every:
                    optimizer.step()

            if comm.rank == 0:
                step()
            comm.is_same_on_all_ranks(b"rank 0 has stepped")
            if comm.rank == 1:
                step()  # late: is given rank 0's, and owes its own
                every[0]._gradients.buckets[0].mean.start_flush()
            comm.is_same_on_all_ranks(b"rank 1 has left the first bucket")
            if comm.rank == 0:
                every[0]._timeout = 0.3
                with pytest.raises(pc.StallError):
                    every[0].flush()
                assert every[0]._gradients.buckets[0].given
                for refused in (lambda: backward(parameters, 8.0), every[0].step):
                    with pytest.raises(RuntimeError, match=r"call flush\(\) again"):
                        refused()
                every[0]._timeout = 5.0
            comm.is_same_on_all_ranks(b"rank 0 has stalled")
            every[0].flush()
            flushed = values(parameters)
        return flushed, values(parameters)

    assert ranks(2, program) == [([{-2.0}] * 2,) * 2] * 2


def test_an_optimizer_made_while_a_flush_is_stalled_is_no_part_of_it():
    def program(comm):
        of_first, of_second = weights(2), weights(2)
        with EagerOptimizer(sgd(of_first), comm, pc.Full(), timeout=5.0) as first:
            if comm.rank == 0:
                first._timeout = 0.3
                with pytest.raises(pc.StallError):
                    first.flush()
                first._timeout = 5.0
            comm.is_same_on_all_ranks(b"rank 0 has stalled")
            if comm.rank == 1:
                first.flush()
            with EagerOptimizer(sgd(of_second), comm, pc.Full(), timeout=5.0) as second:
                if comm.rank == 0:
                    first.flush()
                for optimizer, parameters in ((first, of_first), (second, of_second)):
                    backward(parameters, 1.0)
                    optimizer.step()
        return values(of_first), values(of_second)

    assert ranks(2, program) == [([{-1.0}], [{-1.0}])] * 2


@pytest.mark.parametrize("overlap", [True, False])
def test_a_stalled_step_with_a_closure_goes_on(overlap):
    """The closure is not run again until the next step, though the stalled one may go on without it."""

    def program(comm):
        parameters = weights(2, 2)
        losses = iter((3.0, 5.0, 7.0))
        with eager(sgd(parameters), comm, bucket_bytes=1, overlap=overlap) as optimizer:

            def closure():
                optimizer.zero_grad()
                backward(parameters, 1.0)
                return next(losses)

            def stall():
                comm.is_same_on_all_ranks(b"none is in the step yet")
                if comm.rank == 0:
                    optimizer._timeout = 0.3
                    with pytest.raises(pc.StallError):
                        optimizer.step(closure)
                    optimizer._timeout = LIMIT
                comm.is_same_on_all_ranks(b"rank 0 has stalled")

            stall()
            returned = [optimizer.step(closure)]
            stall()
            if comm.rank == 0:
                optimizer.step()
            else:
                optimizer.step(closure)
            returned.append(optimizer.step(closure))
        return returned, values(parameters)

    assert ranks(2, program) == [([3.0, 7.0], [{-3.0}, {-3.0}])] * 2


def test_closed():
    def program(comm):
        parameters = weights(2)
        optimizer = eager(sgd(parameters), comm)
        optimizer.close()
        optimizer.close()
        for call in (optimizer.step, optimizer.flush, optimizer.synchronize_parameters):
            with pytest.raises(pc.ClosedError, match="EagerOptimizer is closed"):
                call()
        backward(parameters, 1.0)  # hooks are gone
        optimizer.optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2
