"""The optimizer for PyTorch, with ranks as threads of this process."""

from __future__ import annotations

import collections
import copy
import doctest
import importlib
import random
import subprocess
import sys
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.deadline import Deadline  # noqa: E402
from pycollectives.interop.buckets import Bucket, fused  # noqa: E402
from pycollectives.interop.torch import EagerOptimizer  # noqa: E402
from pycollectives.testing import run_ranks  # noqa: E402

LIMIT = 30.0


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ranks(size, program, **options):
    return run_ranks(size, program, timeout=60.0, **options)


def weights(*shapes, dtype=torch.float64):
    return [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]


def sgd(parameters, lr=1.0, **options):
    return torch.optim.SGD(parameters, lr=lr, **options)


def eager(optimizer, comm, policy=None, **options):
    return EagerOptimizer(optimizer, comm, policy or pc.Full(), timeout=LIMIT, **options)


def backward(parameters, gradient):
    """Give every element of every parameter this gradient."""
    sum(parameter.sum() * gradient for parameter in parameters).backward()


def values(parameters):
    return [set(parameter.detach().reshape(-1).tolist()) for parameter in parameters]


def test_examples():
    assert doctest.testmod(importlib.import_module("pycollectives.interop.torch")).failed == 0


def test_the_package_does_not_import_torch():
    program = "import sys, pycollectives as pc, pycollectives.interop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


# ---------------------------------------------------------------------------------------------------- buckets


def test_fused_keeps_the_order_and_separates_dtypes():
    a, b, c, d = weights(2, 2, 2, 2)
    x, y = weights(3, 3, dtype=torch.float16)
    groups = list(fused([a, x, b, c, y, d], 32))
    assert [[id(tensor) for tensor in group] for group in groups] == [
        [id(a), id(b)],
        [id(c), id(d)],
        [id(x), id(y)],
    ]


def test_gradients_are_views_of_a_bucket_and_stay_so():
    def program(comm):
        parameters = weights((2, 3), 4)
        with eager(sgd(parameters), comm) as optimizer:
            for set_to_none in (True, False, False):
                optimizer.zero_grad(set_to_none=set_to_none)
                backward(parameters, 2.0)
                optimizer.step()
                (bucket,) = optimizer._buckets
                data = bucket.flat.untyped_storage().data_ptr()
                assert all(tensor.grad.untyped_storage().data_ptr() == data for tensor in parameters)
            assert bucket.flat.tolist() == [2.0] * 10
        return values(parameters)

    assert ranks(2, program) == [[{-6.0}, {-6.0}]] * 2


def test_two_calls_in_one_round_are_given_its_result_once():
    """As when a rank has arrived again, and the round is still open in its next step."""
    contributed = threading.Event()

    def program(comm):
        (parameter,) = weights(2)
        bucket = Bucket([parameter], lambda array: comm.partial_allreduce(array, policy=pc.Quorum(2)))
        parameter.grad = torch.ones(2, dtype=torch.float64)
        if comm.rank == 0:
            bucket.contribute()
            bucket.begin()
        else:
            contributed.wait(LIMIT)
        bucket.contribute()
        contributed.set()
        bucket.wait(Deadline(LIMIT))
        return bucket.flat.tolist()

    assert ranks(2, program) == [[3.0, 3.0]] * 2


def test_buckets_are_contributed_during_backward():
    """The last layer's is on its way, and under Solo its round done, before the first layer's gradient is there."""
    seen = []

    def program(comm):
        first, last = weights(2, 2)
        with eager(sgd([first, last]), comm, pc.Solo(), bucket_bytes=1) as optimizer:
            rounds = [bucket.allreduce for bucket in optimizer._buckets]
            hidden = first * 1.0
            hidden.register_hook(lambda _: seen.append([allreduce.rounds for allreduce in rounds]))
            (hidden * last).sum().backward()
            seen.append([allreduce.rounds for allreduce in rounds])
            optimizer.step()
            seen.append([allreduce.rounds for allreduce in rounds])

    ranks(1, program)
    assert seen == [[1, 0], [1, 1], [1, 1]]


def test_without_overlap_nothing_is_contributed_before_step():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), overlap=False) as optimizer:
            (bucket,) = optimizer._buckets
            backward(parameters, 1.0)
            backward(parameters, 1.0)
            parameters[0].grad *= 2
            assert bucket.allreduce.rounds == 0
            optimizer.step()
            assert bucket.allreduce.rounds == 1
        return values(parameters)

    assert ranks(1, program) == [[{-4.0}]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype):
    def program(comm):
        parameters = [*weights(3, (2, 2), dtype=dtype), *weights(2)]
        with eager(sgd(parameters), comm) as optimizer:
            for _ in range(2):
                optimizer.zero_grad()
                for parameter in parameters:
                    parameter.sum().mul(1.0 + comm.rank).backward()
                optimizer.step()
            assert len(optimizer._buckets) == (1 if dtype is torch.float64 else 2)
        return values(parameters)

    assert ranks(3, program) == [[{-4.0}] * 3] * 3


def test_parameters_that_are_not_contiguous():
    def program(comm):
        matrix = torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.float64).t())
        assert not matrix.is_contiguous()
        scale = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
        with eager(sgd([matrix]), comm) as optimizer:
            (matrix * scale).sum().backward()
            optimizer.step()
        return torch.equal(matrix.detach(), -scale)

    assert ranks(2, program) == [True, True]


# ---------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("average", ["world", "contributors"])
def test_a_gradient_that_a_rank_lacks_counts_as_zeros(average):
    def program(comm):
        used, skipped, never = parameters = weights(2, 2, 2)
        with eager(sgd(parameters), comm, average=average) as optimizer:
            backward([used] if comm.rank == 0 else [used, skipped], 4.0)
            optimizer.step()
            assert never.grad.tolist() == [0.0, 0.0]
            optimizer.zero_grad()
            backward([never], 0.0)
            optimizer.step()  # nothing of the first step is left in the bucket
        return values(parameters)

    assert ranks(2, program) == [[{-4.0}, {-2.0}, {0.0}]] * 2


def test_average_over_contributors_or_over_all():
    def program(comm, average):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), average=average) as optimizer:
            if comm.rank == 0:
                backward(parameters, 6.0)
                optimizer.step()
            comm.same_everywhere(b"rank 0 has stepped")
        return values(parameters)[0]

    assert ranks(2, lambda comm: program(comm, "world"))[0] == {-3.0}
    assert ranks(2, lambda comm: program(comm, "contributors"))[0] == {-6.0}


def test_parameter_groups_have_their_own_learning_rate():
    def program(comm):
        slow, fast = weights(2, 2)
        groups = [{"params": [slow], "lr": 1.0}, {"params": [fast]}]
        with eager(sgd(groups, lr=10.0), comm) as optimizer:
            backward([slow, fast], 1.0)
            optimizer.step()
        return values([slow, fast])

    assert ranks(2, program) == [[{-1.0}, {-10.0}]] * 2


def test_frozen_layers():
    """Frozen before: in no bucket. Frozen later: left alone, even by momentum. Trainable again: goes on."""

    def program(comm):
        always, later, never = parameters = weights(2, 2, 2)
        never.requires_grad_(False)
        with eager(sgd(parameters, momentum=0.5), comm, bucket_bytes=1) as optimizer:
            assert len(optimizer._buckets) == 2
            backward([always, later], 1.0)
            optimizer.step()
            later.requires_grad_(False)
            optimizer.zero_grad()
            backward([always], 0.0)
            optimizer.step()
            assert values(parameters) == [{-1.5}, {-1.0}, {0.0}]
            later.requires_grad_(True)
            optimizer.zero_grad()
            backward([later], 1.0)
            optimizer.step()
            assert values(parameters)[1:] == [{-2.5}, {0.0}]
            never.requires_grad_(True)
            with pytest.raises(RuntimeError, match="parameter 2 of group 0 was frozen"):
                optimizer.step()
            never.requires_grad_(False)

    ranks(2, program)


def test_a_parameter_group_added_later_is_averaged():
    def program(comm):
        parameters = weights(2)
        added = torch.nn.Parameter(torch.full((2,), float(comm.rank)))
        with eager(sgd(parameters), comm) as optimizer:
            optimizer.add_param_group({"params": [added], "lr": 2.0})
            backward([*parameters, added], float(comm.rank))
            optimizer.step()
        return values([*parameters, added])

    assert ranks(3, program) == [[{-1.0}, {-2.0}]] * 3


def test_gradients_accumulate_in_no_sync():
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm, pc.Solo()) as optimizer:
            (bucket,) = optimizer._buckets
            for _ in range(2):
                optimizer.zero_grad()
                with optimizer.no_sync():
                    backward(parameters, 1.0)
                    backward(parameters[:1], 1.0)
                before = bucket.allreduce.rounds
                backward(parameters[1:], 1.0)
                assert bucket.allreduce.rounds == before  # the first has no gradient in this backward
                optimizer.step()
                assert bucket.allreduce.rounds == before + 1
        return values(parameters)

    assert ranks(1, program) == [[{-4.0}, {-4.0}]]


def test_a_second_backward_is_refused():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            backward(parameters, 1.0)
            with pytest.raises(RuntimeError, match="no_sync"):
                backward(parameters, 1.0)
            with pytest.raises(RuntimeError, match="call step"):
                optimizer.flush()
            parameters[0].grad = None
            with pytest.raises(RuntimeError, match="was changed after"):
                optimizer.step()
            raise KeyError  # leaves the block without a flush

    with pytest.warns(RuntimeWarning, match="EagerOptimizer was left by KeyError"), pytest.raises(KeyError):
        ranks(1, program)


def test_gradients_changed_after_backward_are_refused_and_may_be_after_averaging():
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm) as optimizer:
            backward(parameters, float(comm.rank))
            optimizer.average_gradients()
            torch.nn.utils.clip_grad_value_(parameters, 0.25)
            optimizer.step()
            optimizer.zero_grad()
            backward(parameters, 1.0)
            parameters[1].grad *= 2
            with pytest.raises(RuntimeError, match=r"parameter . of group 0 or its neighbours was changed after"):
                optimizer.step()
            assert values(parameters) == [{-0.25}] * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = ranks(2, program, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["flush: gradients are on their way: call step() before"] * 2


def test_closures():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:

            def closure():
                optimizer.zero_grad()
                loss = sum(parameter.sum() * comm.rank for parameter in parameters)
                loss.backward()
                return loss.item()

            assert optimizer.step(closure) == 0.0
            assert optimizer.step(closure) == -1.0 * comm.rank
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2


def test_torch_takes_it_for_an_optimizer():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters, lr=1.0, momentum=0.5), comm) as optimizer:
            assert isinstance(optimizer, torch.optim.Optimizer)
            seen = []
            optimizer.register_step_post_hook(lambda *_: seen.append("stepped"))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
                for _ in range(2):
                    optimizer.zero_grad()
                    backward(parameters, 1.0)
                    optimizer.step()
                    scheduler.step()
            assert seen == ["stepped"] * 2
            assert optimizer.param_groups[0]["lr"] == 0.25
            assert "SGD" in repr(optimizer)
        return values(parameters)

    assert ranks(2, program) == [[{-1.75}]] * 2


@pytest.mark.parametrize("make", [lambda p: sgd(p, 0.1, momentum=0.9, nesterov=True), lambda p: torch.optim.Adam(p)])
def test_state_goes_into_a_plain_optimizer_and_back(make):
    def program(comm):
        parameters, plain = weights(3), weights(3)
        reference = make(plain)
        with eager(make(parameters), comm) as optimizer:
            for step in range(4):
                for each, those in ((optimizer, parameters), (reference, plain)):
                    each.zero_grad()
                    (those[0] * torch.arange(3.0)).sum().mul(1 + step).backward()
                    each.step()
                if step == 1:
                    state = optimizer.state_dict()
                    assert {*state} == {"state", "param_groups"}
                    reference.load_state_dict(copy.deepcopy(state))
                    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
                assert torch.equal(parameters[0], plain[0])

    ranks(2, program)


# ---------------------------------------------------------------------------------------------------- all ranks


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
    pc.AnyOf(2, seed=7),
    pc.AllOf(2, seed=7),
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
        def _allreduce_like(self, array, tensors):
            self._policy = pc.Majority(seed=STARTED_BY[starters[len(self._buckets)]])
            return super()._allreduce_like(array, tensors)

    happened = collections.defaultdict(threading.Event)

    def after(event):
        assert happened[event].wait(LIMIT), event

    def program(comm):
        parameters = weights(*[1] * len(starters))
        with OnePolicyPerBucket(sgd(parameters), comm, bucket_bytes=1, missed="sum", timeout=5.0) as optimizer:
            of_bucket = [bucket.parameters[0] for bucket in optimizer._buckets]

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
                    same.append(all(comm.same_everywhere(tensor.detach().numpy()) for tensor in parameters))
            return same

    assert ranks(3, program) == [[True, True]] * 3


def test_flush_applies_what_is_owed_and_nothing_if_nothing_is():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters, momentum=0.5), comm, pc.Solo()) as optimizer:
            comm.same_everywhere(b"begin")
            if comm.rank == 0:
                backward(parameters, 2.0)
                optimizer.step()
            comm.same_everywhere(b"rank 0 has stepped")
            if comm.rank == 1:
                backward(parameters, 4.0)
                optimizer.step()  # late: is given rank 0's, and owes its own
            optimizer.flush()
            after = values(parameters)
            assert parameters[0].grad is None
            optimizer.flush()
            assert values(parameters) == after
        return after

    # Each applies rank 0's mean, 1, and then rank 1's, 2, with the momentum of the first.
    assert ranks(2, program) == [[{-1.0 - 2.5}]] * 2


def test_what_the_rounds_were():
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm, bucket_bytes=1) as optimizer:
            assert optimizer.rounds == ()
            assert optimizer.mean_active == 0.0
            backward(parameters, 1.0)
            optimizer.step()
            return [info.contributors for info in optimizer.rounds], optimizer.mean_active, optimizer.mean_staleness

    assert ranks(3, program) == [([(0, 1, 2)] * 2, 3.0, 0.0)] * 3


def test_parameters_of_rank_0_to_begin_with():
    def program(comm):
        parameters = [
            torch.nn.Parameter(torch.tensor([float(comm.rank), -0.0])),
            torch.nn.Parameter(torch.tensor([comm.rank + 5], dtype=torch.int64), requires_grad=False),
        ]
        with eager(sgd(parameters), comm):
            return [str(parameter.tolist()) for parameter in parameters]

    assert ranks(3, program) == [["[0.0, -0.0]", "[5]"]] * 3


def test_a_stalled_step_and_a_stalled_flush_go_on():
    def program(comm):
        parameters = weights(2, 2)
        with EagerOptimizer(sgd(parameters), comm, pc.Full(), timeout=0.3, bucket_bytes=1) as optimizer:
            if comm.rank == 0:
                backward(parameters, 1.0)
                with pytest.raises(pc.StallError):
                    optimizer.step()
                comm.same_everywhere(b"rank 0 has stalled")
                optimizer._timeout = LIMIT
                optimizer.step()
                optimizer._timeout = 0.3
                with pytest.raises(pc.StallError):
                    optimizer.flush()
            else:
                comm.same_everywhere(b"rank 0 has stalled")
                optimizer._timeout = LIMIT
                backward(parameters, 1.0)
                optimizer.step()
            comm.same_everywhere(b"rank 0 has stalled twice")
            optimizer._timeout = LIMIT
            optimizer.flush()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}, {-1.0}]] * 2


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


# ---------------------------------------------------------------------------------------------------- refusals


def on_meta(parameters):
    return sgd([torch.nn.Parameter(torch.zeros(2, device="meta"))])


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (lambda p: torch.optim.LBFGS(p), {}, "LBFGS is refused"),
        (lambda p: p, {}, "expected a torch.optim.Optimizer, got list"),
        (lambda p: sgd([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))]), {}, "got complex64"),
        (on_meta, {}, "expected host memory, got device meta"),
        (lambda p: sgd([torch.zeros(2)]), {}, "none of its parameters requires gradients"),
        (sgd, {"average": "ranks"}, "average: expected"),
        (sgd, {"bucket_bytes": 0}, "bucket_bytes: expected at least 1"),
        (sgd, {"bucket_bytes": 1.5}, "bucket_bytes: expected an integer"),
        (sgd, {"sync_every": 0}, "sync_every: expected at least 1"),
        (sgd, {"missed": "all"}, "missed: expected"),
        (sgd, {"policy": "solo"}, "policy: expected"),
    ],
)
def test_what_is_refused_on_one_rank_is_told_to_all(make, options, text):
    def program(comm):
        if comm.rank == 1:
            with pytest.raises((TypeError, ValueError), match=text):
                EagerOptimizer(make(weights(2)), comm, **options)
        else:
            with pytest.raises(pc.MismatchError, match="refused on rank 1"):
                EagerOptimizer(sgd(weights(2)), comm)
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:  # the communicator is as usable as before
            backward(parameters, 1.0)
            optimizer.step()

    ranks(2, program)


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        ([(2, 3), 4], {}, r"\(3, 2\)"),
        ([4, (3, 2)], {}, r"\(3, 2\)"),
        ([(3, 2)], {}, "parameters"),
        ([(3, 2), 4], {"bucket_bytes": 8}, "bucket_bytes"),
        ([(3, 2), 4], {"sync_every": 3}, "sync_every: None on rank"),
        ([(3, 2), 4], {"average": "contributors"}, "average"),
        ([(3, 2), 4], {"policy": pc.Solo()}, "policy"),
        ([(3, 2), 4], {"missed": "sum"}, "missed"),
    ],
)
def test_what_differs_between_ranks_is_told_to_all(shapes, options, text):
    def program(comm):
        good = [(3, 2), 4]
        with pytest.raises(pc.MismatchError, match=text):
            EagerOptimizer(
                sgd(weights(*(shapes if comm.rank == 2 else good))), comm, **options if comm.rank == 2 else {}
            )
        return True

    assert ranks(3, program) == [True] * 3


def test_sparse_gradients_are_refused():
    def program(comm):
        layer = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = eager(torch.optim.SGD(layer.parameters(), lr=1.0), comm)
        with pytest.raises(TypeError, match="parameter 0 of group 0 has a sparse gradient"):
            layer(torch.tensor([1])).sum().backward()
        layer.weight.grad = None
        optimizer.close()

    ranks(1, program)
