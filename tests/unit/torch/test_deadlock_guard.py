"""Several optimizers in one thread: which go together, and how they are flushed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        (pc.Majority(), pc.Majority(), {}),
        (pc.Quorum(2), pc.policies.AnyOf(1), {}),
        (pc.Full(), pc.policies.AllOf(2), {}),
        (pc.Majority(), pc.Full(), {}),
        (pc.Majority(), pc.Solo(), {"max_staleness": 1}),
    ],
)
def test_two_that_could_hang_are_refused_in_one_line(first, second, options):
    def program(comm):
        parameters = weights(2)
        refused = pytest.raises(
            ValueError, match=r"each other indefinitely.* in 'D', which is open: use Solo\(\) for all but one"
        )
        with eager(sgd(weights(2)), comm, first, name="D"), refused:
            eager(sgd(parameters), comm, second, name="G", **options)
        with eager(sgd(parameters), comm, second, name="G", **options):  # the other one is closed
            pass
        return True

    assert ranks(3, program) == [True] * 3


@pytest.mark.parametrize(
    ("first", "second"), [(pc.Full(), pc.Full()), (pc.Solo(), pc.Majority()), (pc.Quorum(2), pc.Solo())], ids=repr
)
def test_others_are_stepped_in_turns(first, second):
    def program(comm):
        of_first, of_second = weights(2), weights(3)
        options = {"missed": "sum"}
        with eager(sgd(of_first), comm, first, **options) as one, eager(sgd(of_second), comm, second, **options) as two:
            for _ in range(20):
                for optimizer, parameters in ((one, of_first), (two, of_second)):
                    optimizer.zero_grad()
                    backward(parameters, 3.0)
                    optimizer.step()
        return values(of_first), values(of_second)

    assert ranks(3, program) == [([{-60.0}], [{-60.0}])] * 3


def test_one_rank_has_nobody_to_wait_for():
    def program(comm):
        with eager(sgd(weights(2)), comm, pc.Majority()), eager(sgd(weights(2)), comm, pc.Majority()):
            return True

    assert ranks(1, program) == [True]


@pytest.mark.parametrize("policy", [pc.Quorum(2), pc.Full()], ids=repr)
def test_a_rank_that_flushes_one_is_not_waited_for_in_another(policy):
    """Rank 0 waits in a step for rank 1, which has ended its steps and closes the other optimizer first."""

    def program(comm):
        of_first, of_second = weights(2), weights(2)
        first = EagerOptimizer(sgd(of_first), comm, policy, missed="sum", timeout=5.0)
        with first, EagerOptimizer(sgd(of_second), comm, pc.Solo(), timeout=5.0):
            if comm.rank == 0:
                backward(of_first, 2.0)
                first.step()
        return values(of_first)

    assert ranks(2, program) == [[{-1.0}]] * 2


def test_what_is_on_its_way_in_another_is_an_error_of_flush():
    def program(comm):
        of_first, of_second = weights(2), weights(2)
        first, second = (eager(sgd(each), comm, name=name) for each, name in ((of_first, "D"), (of_second, "G")))
        backward(of_first, 1.0)
        with pytest.raises(RuntimeError, match="flush: gradients of D are in flight"):
            second.flush()
        first.step()
        second.leave()
        first.leave()
        return True

    assert ranks(2, program) == [True] * 2
