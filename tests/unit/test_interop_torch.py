"""What a program of PyTorch does with an optimizer, with ranks as threads of this process."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402


def test_the_package_does_not_import_torch():
    program = "import sys, pycollectives as pc, pycollectives.interop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_gradients_accumulate_in_no_sync():
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm, pc.Solo()) as optimizer:
            (bucket,) = optimizer._gradients.buckets
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
