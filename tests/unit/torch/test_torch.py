"""What a program of PyTorch does with an optimizer, with ranks as threads of this process."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402


def test_the_package_does_not_import_torch():
    program = "import sys, pycollectives as pc, pycollectives.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_without_torch_it_says_what_to_install():
    program = "import sys; sys.modules['torch'] = None; from pycollectives.torch import DecentralizedOptimizer"
    said = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True).stderr
    assert said.splitlines()[-1] == (
        "ImportError: pycollectives.torch needs PyTorch: pip install 'pycollectives[torch]', or in a checkout: "
        "pip install '.[torch]'"
    )
    assert said.count("Traceback") == 1


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
                before = bucket.mean.rounds
                backward(parameters[1:], 1.0)
                assert bucket.mean.rounds == before  # the first has no gradient in this backward
                optimizer.step()
                assert bucket.mean.rounds == before + 1
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

    with pytest.warns(RuntimeWarning, match="EagerOptimizer ended with KeyError"), pytest.raises(KeyError):
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
            with pytest.raises(RuntimeError, match=r"parameter 1 of group 0 was changed after"):
                optimizer.step()
            assert values(parameters) == [{-0.25}] * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = ranks(2, program, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [
        "close: gradients of EagerOptimizer are in flight: call step() first, or abort()"
    ] * 2


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


def test_a_closure_is_skipped_only_by_a_step_whose_gradients_it_has_left():
    def program(comm):
        _, later = parameters = weights(2, 2)
        later.requires_grad_(False)

        def closure():
            optimizer.zero_grad()
            backward([parameter for parameter in parameters if parameter.requires_grad], 1.0)

        with eager(sgd(parameters), comm, overlap=False) as optimizer:
            later.requires_grad_(True)
            with pytest.raises(RuntimeError, match="add_unfrozen"):
                optimizer.step(closure)
            optimizer.add_unfrozen()
            optimizer.step(closure)
        assert values(parameters) == [{-1.0}] * 2
        optimizer = eager(sgd(parameters), comm)
        optimizer.step(closure)
        backward(parameters, 1.0)
        with pytest.raises(RuntimeError, match="a second time"):
            optimizer.step(closure)
        optimizer.abort()

    ranks(1, program)


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
def test_state_goes_into_a_plain_optimizer(make):
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
                assert torch.equal(parameters[0], plain[0])

    ranks(2, program)


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_ended():
    def program(comm):
        def train(parameters, steps, state=None):
            with eager(sgd(parameters, momentum=0.5), comm) as optimizer:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
                if state is not None:
                    optimizer.load_state_dict(state["optimizer"])
                    scheduler.load_state_dict(state["scheduler"])
                for step in steps:
                    optimizer.zero_grad()
                    backward(parameters, float(step + comm.rank))
                    optimizer.step()
                    scheduler.step()
                optimizer.flush()
                file = io.BytesIO()
                torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
            file.seek(0)
            return torch.load(file)

        straight, resumed = weights(2), weights(2)
        train(straight, range(4))
        train(resumed, range(2, 4), train(resumed, range(2)))
        return torch.equal(straight[0], resumed[0])

    assert ranks(2, program) == [True, True]


def test_it_is_neither_copied_nor_pickled():
    def program(comm):
        with eager(sgd(weights(2)), comm) as optimizer:
            for call in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=r"takes part in collectives: save state_dict\(\)"):
                    call(optimizer)

    ranks(1, program)


def test_averages_that_no_step_used_are_dropped_by_zero_grad():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            for gradient in (1.0, 2.0):
                optimizer.zero_grad()
                backward(parameters, gradient)
                optimizer.average_gradients()
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-2.0}]] * 2


@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_after_averages_that_no_step_used_are_not_taken_for_averages(overlap):
    def program(comm):
        parameters = weights(2, 2)
        with eager(sgd(parameters), comm, overlap=overlap) as optimizer:
            backward(parameters, 8.0)
            optimizer.average_gradients()
            for parameter in parameters:
                parameter.grad = None  # as the model's zero_grad()
            with pytest.raises(RuntimeError, match=r"no step\(\) has used: .* with this optimizer's zero_grad\(\)"):
                one_step(optimizer, parameters, 8.0)
            optimizer.zero_grad()
            one_step(optimizer, parameters, 2.0 * comm.rank)
        return values(parameters)

    def one_step(optimizer, parameters, gradient):
        backward(parameters, gradient)
        optimizer.step()

    assert ranks(2, program) == [[{-1.0}] * 2] * 2


def test_a_loss_of_another_optimizer_may_follow_averages_that_no_step_used():
    """As the generator's, after the discriminator has skipped its step."""

    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            backward(parameters, 8.0)
            optimizer.average_gradients()
            with optimizer.no_sync():
                backward(parameters, 4.0)
            optimizer.zero_grad()
            backward(parameters, 1.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2


def test_averages_that_wait_are_an_error_of_flush_and_dropped_by_close():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            backward(parameters, 1.0)
            optimizer.average_gradients()
            with pytest.raises(RuntimeError, match=r"flush: averages of EagerOptimizer are unused: .*zero_grad\(\)"):
                optimizer.flush()
        return values(parameters), parameters[0].grad, optimizer.closed

    assert ranks(2, program) == [([{0.0}], None, True)] * 2


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_unscales_averages_skips_a_step_everywhere(fused):
    """The gradient of one rank overflows in the second step."""

    def program(comm):
        parameters = weights(2, dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with eager(sgd(parameters, fused=fused), comm) as optimizer:
            for step in range(3):
                optimizer.zero_grad()
                overflows = step == 1 and comm.rank == 1
                scaler.scale(parameters[0].sum() * (float("inf") if overflows else 1.0)).backward()
                optimizer.average_gradients()
                scaler.step(optimizer)
                scaler.update()
        return values(parameters), scaler.get_scale()

    assert ranks(2, program) == [([{-2.0}], 2.0)] * 2


def test_a_scaler_that_comes_after_the_contributions_is_refused():
    def program(comm):
        parameters = weights(2, dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with eager(sgd(parameters), comm) as optimizer:
            scaler.scale(parameters[0].sum()).backward()
            with pytest.raises(RuntimeError, match="has contributed scaled gradients"):
                scaler.step(optimizer)
            optimizer.average_gradients()
            scaler.step(optimizer)
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2


def test_a_scaler_that_unscales_before_averaging_keeps_overflows_from_the_others():
    def program(comm):
        parameters = weights(2, dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with eager(sgd(parameters), comm, pc.Solo(), overlap=False, missed="sum") as optimizer:
            for step in range(2):
                optimizer.zero_grad()
                overflows = step == 1 and comm.rank == 1
                scaler.scale(parameters[0].sum() * (float("inf") if overflows else 2.0)).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_value_(parameters, 1.0)
                scaler.step(optimizer)
                scaler.update()
        return values(parameters), scaler.get_scale()

    # Three gradients of 1 on two ranks.
    assert ranks(2, program) == [([{-1.5}], 4.0), ([{-1.5}], 2.0)]


def test_a_step_after_an_exception_in_backward_uses_what_it_left():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise MemoryError

    def program(comm):
        first, last = parameters = weights(2, 2)
        with eager(sgd(parameters), comm, bucket_bytes=1) as optimizer:
            with pytest.raises(MemoryError):
                (Fails.apply(first) + last).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            backward(parameters, 1.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}, {-2.0}]] * 2


def test_a_skipped_step_whose_bucket_was_not_full_leaves_nothing():
    """Gradients of a backward pass that no step has used, and zero_grad has dropped, do not count as ready."""

    def program(comm):
        first, second = weights(2, 2)
        with eager(sgd([first, second]), comm) as optimizer:
            backward([first], 5.0)  # not all parameters of the bucket
            optimizer.zero_grad()
            backward([first, second], float(comm.rank))
            optimizer.step()
        return values([first, second])

    assert ranks(2, program) == [[{-0.5}, {-0.5}]] * 2


@pytest.mark.parametrize("size", [1, 2])
def test_a_graph_that_has_saved_a_gradient_notices_that_averages_are_written_there(size):
    def program(comm):
        (parameter,) = weights(2)
        with eager(sgd([parameter]), comm, overlap=False) as optimizer:
            parameter.grad = torch.ones(2, dtype=torch.float64)
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            loss = (x * parameter.grad).sum()
            optimizer.step()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()

    ranks(size, program)
