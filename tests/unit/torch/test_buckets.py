"""Gradients in buckets: how they are fused, when they are contributed, what is in them."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from eager import LIMIT, backward, eager, meet, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.support.deadline import Deadline  # noqa: E402
from pycollectives.torch.averaging import GradientAverager  # noqa: E402
from pycollectives.torch.buckets import Bucket, fused, summed_in  # noqa: E402
from pycollectives.torch.means import HostMean  # noqa: E402
from pycollectives.torch.module_buffers import ModuleBuffers  # noqa: E402


def test_fused_keeps_the_order_and_separates_dtypes():
    a, b, c, d = weights(2, 2, 2, 2)
    x, y = weights(3, 3, dtype=torch.float16)
    groups = list(fused([a, x, b, c, y, d], 32))
    assert [[id(tensor) for tensor in group] for group in groups] == [
        [id(a), id(b)],
        [id(c), id(d)],
        [id(x), id(y)],
    ]


def test_fused_for_buffers_of_another_type():
    a, b = weights(2, 2, dtype=torch.float32)
    x, y = weights(3, 3, dtype=torch.bfloat16)
    wide = weights(1)
    groups = list(fused([a, x, *wide, b, y], 20, summed_in))
    assert [[id(tensor) for tensor in group] for group in groups] == [[id(a), id(x)], [id(b), id(y)], [id(wide[0])]]


@pytest.mark.parametrize("overlap", [True, False])
def test_averages_are_written_where_the_gradient_is(overlap):
    """In the program's own tensor, with its strides; in a new one like the parameter, where a rank has no gradient."""

    def program(comm):
        parameters = weights((2, 3), 4)
        parameters[0].data = torch.zeros(3, 2, dtype=torch.float64).t()
        with eager(sgd(parameters), comm, overlap=overlap) as optimizer:
            for set_to_none in (True, False, False):
                optimizer.zero_grad(set_to_none=set_to_none)
                backward(parameters[: 2 - comm.rank], 2.0)
                before = [(tensor.grad, tensor.grad.data_ptr()) for tensor in parameters[: 2 - comm.rank]]
                optimizer.step()
                assert [(tensor.grad, tensor.grad.data_ptr()) for tensor in parameters[: len(before)]] == before
                assert [tensor.grad.stride() for tensor in parameters] == [(1, 2), (1,)]
        return values(parameters)

    assert ranks(2, program) == [[{-6.0}, {-3.0}]] * 2


def wait_for_rounds(numbers, *buckets):
    while [bucket.mean.rounds for bucket in buckets] != numbers:
        time.sleep(1e-3)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_gradients_are_late_until_a_result_has_them(ranks_per_node):
    """Whatever becomes of the zeros by which a rank arrives again. Any two of three ranks start a round."""

    def program(comm):
        (parameter,) = weights(2)
        bucket = Bucket([parameter], lambda flat: HostMean(comm, flat, policy=pc.Quorum(2)))
        told = []

        def contribute():
            bucket.begin()
            bucket.contribute()
            told.append((bucket.must_wait(), bucket.late))

        meet(comm, "begin")
        if comm.rank > 0:
            bucket.contribute()
            bucket.wait(Deadline(LIMIT))
        meet(comm, "round 0 is of ranks 1 and 2")
        if comm.rank == 0:
            wait_for_rounds([1], bucket)
            contribute()
            bucket.arrive_again()
        meet(comm, "rank 0 was late, and has arrived with zeros")
        if comm.rank == 1:
            contribute()
            bucket.wait(Deadline(LIMIT))
        meet(comm, "round 1 is of ranks 0 and 1")
        if comm.rank == 0:
            wait_for_rounds([2], bucket)
            contribute()
            assert bucket.info.included, "the zeros"
        meet(comm, "rank 0 has arrived alone")
        if comm.rank == 1:
            contribute()
        if comm.rank < 2:
            bucket.wait(Deadline(LIMIT))
            told.append(bucket.late)
        if comm.rank == 0:
            contribute()
        meet(comm, "rank 0 has arrived alone again")
        if comm.rank == 1:
            contribute()
            bucket.wait(Deadline(LIMIT))
        if comm.rank == 0:
            wait_for_rounds([4], bucket)
            bucket.start_flush()
            told.append(bucket.late)
        return told

    of_rank_0, *_ = ranks(3, program, ranks_per_node=ranks_per_node)
    assert of_rank_0 == [(False, True), (True, True), False, (True, True), True]


class LateOnDevice:
    """A mean on a device whose newest contribution turns out to be late when it is handed over."""

    waits_for_arrivals = True

    def __init__(self, late):
        self.late_ones = late
        self.calls = []
        self.rounds = 0

    def contribute(self, gradient):
        self.calls.append(LateCall(self, len(self.calls) < self.late_ones))
        return self.calls[-1]

    def write_to(self, out):
        return out


class LateCall:
    """Not handed over before somebody waits for that."""

    def __init__(self, mean, late):
        self._mean, self._late, self._handed_over = mean, late, False

    @property
    def late(self):
        self._mean.rounds += self._late and not self._handed_over
        self._handed_over = True
        return self._late

    def test(self):
        return self._handed_over and self._late

    def wait(self, timeout):
        return SimpleNamespace(round=0, included=False, missed=0)


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_rank_that_waits_has_arrived_in_every_bucket_when_streams_have_made_the_data(late):
    mean = LateOnDevice(late)
    bucket = Bucket(weights(2), lambda flat: mean)
    bucket.contribute()
    assert bucket.must_wait() == (late == 0)
    bucket.arrive_again()
    assert len(mean.calls) == 1 + late
    assert all(call._handed_over for call in mean.calls)


def test_two_calls_in_one_round_are_given_its_result_once():
    """As when a rank has arrived again, and the round is still open in its next step."""
    contributed = threading.Event()

    def program(comm):
        (parameter,) = weights(2)
        bucket = Bucket([parameter], lambda flat: HostMean(comm, flat, policy=pc.Quorum(2)))
        parameter.grad = torch.ones(2, dtype=torch.float64)
        if comm.rank == 0:
            bucket.contribute()
            bucket.begin()
        else:
            contributed.wait(LIMIT)
        bucket.contribute()
        contributed.set()
        bucket.wait(Deadline(LIMIT))
        bucket.show(lambda _: True)
        return parameter.grad.tolist()

    assert ranks(2, program) == [[1.5, 1.5]] * 2


def test_buckets_are_contributed_during_backward():
    """The last layer's is on its way, and under Solo its round done, before the first layer's gradient is there."""
    seen = []

    def program(comm):
        first, last = weights(2, 2)
        with eager(sgd([first, last]), comm, pc.Solo(), bucket_bytes=1) as optimizer:
            means = [bucket.mean for bucket in optimizer._gradients.buckets]
            hidden = first * 1.0
            hidden.register_hook(lambda _: seen.append([mean.rounds for mean in means]))
            (hidden * last).sum().backward()
            seen.append([mean.rounds for mean in means])
            optimizer.step()
            seen.append([mean.rounds for mean in means])

    ranks(1, program)
    assert seen == [[1, 0], [1, 1], [1, 1]]


def test_without_overlap_nothing_is_contributed_before_step():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), overlap=False) as optimizer:
            (bucket,) = optimizer._gradients.buckets
            backward(parameters, 1.0)
            backward(parameters, 1.0)
            parameters[0].grad *= 2
            assert bucket.mean.rounds == 0
            optimizer.step()
            assert bucket.mean.rounds == 1
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
            assert len(optimizer._gradients.buckets) == (1 if dtype is torch.float64 else 2)
            assert [parameter.grad.dtype for parameter in parameters] == [dtype, dtype, torch.float64]
        return values(parameters)

    assert ranks(3, program) == [[{-4.0}] * 3] * 3


@pytest.mark.parametrize("average", ["world", "contributors"])
def test_16_bit_gradients_whose_sum_overflows_have_their_average(average):
    def program(comm):
        parameters = weights(3, dtype=torch.float16)
        with eager(sgd(parameters), comm, divide_by=average) as optimizer:
            backward(parameters, 60000.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-60000.0}]] * 2


def test_the_average_of_16_bit_gradients_is_rounded_once():
    """Their sum, rounded to bfloat16 before it is divided, would give 3 of the least steps above 1."""
    least = 2.0**-7

    def program(comm):
        parameters = weights(1, dtype=torch.bfloat16)
        with eager(sgd(parameters), comm) as optimizer:
            backward(parameters, 1 + least * (2, 2, 3)[comm.rank])
            optimizer.step()
        return values(parameters)

    assert ranks(3, program) == [[{-1.0 - 2 * least}]] * 3


@pytest.mark.parametrize(("gradient", "average"), [(1e38, 1e38), (3e38, float("inf"))])
def test_a_sum_of_bfloat16_beyond_the_range_of_float32_is_infinite(gradient, average):
    """As docs/torch.md says: bfloat16 reaches as far as the float32 in which it is added up."""

    def program(comm):
        parameters = weights(1, dtype=torch.bfloat16)
        with eager(sgd(parameters), comm, overlap=False) as optimizer:
            parameters[0].grad = torch.full((1,), gradient, dtype=torch.bfloat16)
            optimizer.step()
        return float(-parameters[0])

    assert ranks(2, program) == [float(torch.tensor(average, dtype=torch.bfloat16))] * 2


def test_16_bit_parameters_meet_in_their_mean():
    def program(comm):
        parameters = weights(2, dtype=torch.bfloat16)
        with eager(sgd(parameters), comm, pc.Solo()) as optimizer:
            with torch.no_grad():
                parameters[0].fill_(256.0 + 2 * comm.rank)
            optimizer.synchronize_parameters()
        return values(parameters)

    assert ranks(3, program) == [[{258.0}]] * 3


def test_a_16_bit_gradient_changed_after_backward_is_noticed():
    def program(comm):
        parameters = weights(2, 2, dtype=torch.float16)
        optimizer = eager(sgd(parameters), comm)
        backward(parameters, 1.0)
        parameters[1].grad *= 2
        with pytest.raises(RuntimeError, match="parameter 1 of group 0 was changed after"):
            optimizer.step()
        parameters[1].grad.mul_(0.5)
        optimizer.abort()

    ranks(1, program)


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


@pytest.mark.parametrize("average", ["world", "contributors"])
def test_a_gradient_that_a_rank_lacks_counts_as_zeros(average):
    def program(comm):
        used, skipped, never = parameters = weights(2, 2, 2)
        with eager(sgd(parameters), comm, divide_by=average) as optimizer:
            backward([used] if comm.rank == 0 else [used, skipped], 4.0)
            optimizer.step()
            assert skipped.grad is not None
            assert never.grad is None
            optimizer.zero_grad()
            backward([never], 0.0)
            optimizer.step()  # nothing of the first step is left in the bucket
        return values(parameters)

    assert ranks(2, program) == [[{-4.0}, {-2.0}, {0.0}]] * 2


def test_average_over_contributors_or_over_all():
    def program(comm, average):
        parameters = weights(2)
        with eager(sgd(parameters), comm, pc.Solo(), divide_by=average) as optimizer:
            if comm.rank == 0:
                backward(parameters, 6.0)
                optimizer.step()
            meet(comm, "rank 0 has stepped")
        return values(parameters)[0]

    assert ranks(2, lambda comm: program(comm, "world"))[0] == {-3.0}
    assert ranks(2, lambda comm: program(comm, "contributors"))[0] == {-6.0}


def test_what_the_rounds_were():
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm, bucket_bytes=1) as optimizer:
            assert optimizer.rounds == ()
            assert (optimizer.mean_active, optimizer.mean_late, optimizer.mean_missed) == (0.0, 0.0, 0.0)
            backward(parameters, 1.0)
            optimizer.step()
            means = optimizer.mean_active, optimizer.mean_late, optimizer.mean_missed
            return [info.contributors for info in optimizer.rounds], means

    assert ranks(3, program) == [([(0, 1, 2)] * 2, (3.0, 0.0, 0.0))] * 3


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_what_a_rank_missed_and_where_it_was_late(ranks_per_node):
    def program(comm):
        parameters = weights(2, 2)
        told = []

        def step():
            backward([parameter for parameter in parameters if parameter.grad is None], 1.0)
            optimizer.step()
            optimizer.zero_grad()
            told.append((optimizer.mean_late, optimizer.mean_missed))

        with eager(sgd(parameters), comm, pc.Solo(), bucket_bytes=1) as optimizer:
            meet(comm, "begin")
            if comm.rank == 0:
                for _ in range(3):
                    step()
                backward(parameters[1:], 1.0)
                wait_for_rounds([5, 4], *optimizer._gradients.buckets)
            else:
                wait_for_rounds([4, 3], *optimizer._gradients.buckets)
                for _ in range(2):
                    step()
            meet(comm, "rank 1 has taken two steps")
            if comm.rank == 0:
                step()
        return told

    # Of four rounds of one bucket and three of the other, rank 1 is given the last: it has missed three and two. Its
    # second step is one round of each. So rank 0 is late in the other bucket, and has missed nothing but that round.
    assert ranks(2, program, ranks_per_node=ranks_per_node) == [
        [(0.0, 0.0)] * 3 + [(0.5, 0.0)],
        [(1.0, 2.5), (0.0, 0.0)],
    ]


class PlayedMean:
    """A played mean: each round is complete at once, with the result that the test has set."""

    waits_for_arrivals = False

    def __init__(self, like):
        self.collective = SimpleNamespace(result=like.numpy().copy())
        self.rounds = 0
        self.flushed = None

    def contribute(self, gradient):
        self.collective.result += gradient.numpy()
        info = SimpleNamespace(round=self.rounds, included=True, missed=0)
        self.rounds += 1
        return SimpleNamespace(late=False, test=lambda: True, wait=lambda timeout: info)

    def write_to(self, out):
        out.copy_(torch.from_numpy(self.collective.result))

    def write_parts(self, outs):
        for start, out in outs:
            out.detach().copy_(torch.from_numpy(self.collective.result[start : start + out.numel()]))

    def add_to(self, out):
        out += torch.from_numpy(self.collective.result)

    def start_flush(self):
        pass

    def flush(self, timeout):
        return self.flushed

    def show_unused(self, unused):
        self.unused = unused


def played(overlap=False):
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    averager = GradientAverager(lambda _, like: PlayedMean(like), overlap=overlap, name_of=str, is_open=lambda: True)
    averager.add([parameter], 1)
    parameter.grad = torch.ones(2, dtype=torch.float64)
    return averager, averager.buckets[0]


def test_averages_are_unused_until_the_step_has_ended():
    """A rank that replaces a dead one receives them too."""
    averager, bucket = played()
    assert bucket.mean.unused() is None
    averager.average(Deadline(None))
    unused = bucket.mean.unused()
    assert unused.result[:2].tolist() == [1.0, 1.0]
    assert (unused.rounds, unused.flushed) == (1, False)
    averager.end_step()
    assert bucket.mean.unused() is None


@pytest.mark.parametrize("flushed", [None, 0, 1])
def test_a_flush_gives_a_round_once_and_counts_an_empty_one(flushed):
    """The number of the flush round; None if it was empty, 0 if a call has received it before a timeout."""
    averager, bucket = played()
    bucket.contribute()
    averager.begin_flush()
    averager.start_flush()
    if flushed is not None:
        bucket.mean.flushed = SimpleNamespace(round=flushed, missed=0)
    averager.flush(Deadline(None))
    unused = bucket.mean.unused()
    assert unused.result[:2].tolist() == ([2.0, 2.0] if flushed == 1 else [1.0, 1.0])
    assert (unused.rounds, unused.flushed) == (1 if flushed == 0 else 2, True)


def test_buffers_of_something_else_are_refused_before_the_flush_is_missed():
    """The operations are listed before the flush: an error there would leave the other ranks waiting."""
    buffers = ModuleBuffers(None, [torch.zeros(2)])
    assert buffers.broadcasts() == []
    with pytest.raises(TypeError):
        buffers.checked()


def test_a_newcomer_with_other_buckets_is_refused():
    def program(comm):
        refused = pytest.raises(RuntimeError, match=r"expected the survivors' buckets of parameters, \[\[0\], \[1\]\]")
        with eager(sgd(weights(2, 3)), comm) as optimizer, refused:
            optimizer._restore({"buckets": [[0], [1]]})

    ranks(1, program)
