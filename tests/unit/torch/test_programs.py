"""What programs of other people do: compile, assign to the optimizer, leave parameters unused, evaluate in between."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402


def losses(comm, compiled):
    """Return the losses of three steps, of which a part is compiled."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    draw = torch.Generator().manual_seed(comm.rank)
    with eager(sgd(model.parameters(), lr=0.1), comm) as optimizer:
        run = torch.compile(model, backend="aot_eager") if compiled == "model" else model

        def train(x):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        if compiled in ("train function", "autograd"):  # the latter compiles backward too, with its hooks
            train = torch.compile(train, backend="aot_eager")
        elif compiled == "step":
            optimizer.step = torch.compile(optimizer.step, backend="aot_eager")
        with torch._dynamo.config.patch(compiled_autograd=compiled == "autograd"):
            return [float(train(torch.randn(8, 3, generator=draw, dtype=torch.float64))) for _ in range(3)]


@pytest.mark.parametrize("compiled", ["model", "train function", "step", "autograd"])
def test_compiled_programs_train_as_others_do(compiled):
    (expected,) = ranks(1, lambda comm: losses(comm, "nothing"))
    assert ranks(1, lambda comm: losses(comm, compiled)) == [pytest.approx(expected, rel=1e-12)]


def test_what_is_assigned_to_it_is_assigned_to_the_wrapped_optimizer():
    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters, lr=1.0, momentum=0.5)
        with eager(inner, comm) as optimizer:
            groups = [{**inner.param_groups[0], "lr": 0.25}]
            optimizer.param_groups = groups
            assert inner.param_groups is groups
            state = {parameters[0]: {"momentum_buffer": torch.full((2,), 8.0, dtype=torch.float64)}}
            optimizer.state = state
            assert inner.state is state
            backward(parameters, 2.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.5}]] * 2  # 0.25 * (0.5 * 8 + 2)


def test_parameters_that_no_rank_uses_are_left_alone():
    """As without this library: no decay, no state. What one rank uses all ranks step with."""

    def program(comm):
        parameters = weights(1, 1, 1)
        with torch.no_grad():
            for parameter in parameters:
                parameter.fill_(1.0)
        everywhere, somewhere, nowhere = parameters
        with eager(sgd(parameters, lr=0.5, weight_decay=1.0), comm) as optimizer:
            for _ in range(2):
                optimizer.zero_grad()
                backward([everywhere] + ([somewhere] if comm.rank == 1 else []), 0.0)
                optimizer.step()
                assert nowhere.grad is None
                assert somewhere.grad is not None
        return values(parameters)

    assert ranks(3, program) == [[{0.25}, {0.25}, {1.0}]] * 3


@pytest.mark.parametrize("policy", ["solo", "quorum:2", "quorum", "full"])
def test_a_policy_may_be_a_text(policy):
    def program(comm):
        parameters = weights(1)
        with EagerOptimizer(sgd(parameters), comm, policy) as optimizer:
            backward(parameters, 3.0)
            optimizer.step()
        return policy.partition(":")[0].title() in repr(optimizer), values(parameters)

    assert ranks(3, program) == [(True, [{-3.0}])] * 3


def test_a_wrong_policy_is_refused_on_all_ranks():
    def program(comm):
        with pytest.raises((ValueError, pc.MismatchError), match="policy 'quorum:x': "):
            EagerOptimizer(sgd(weights(1)), comm, "quorum:x" if comm.rank == 1 else "quorum:2")

    ranks(3, program)


def test_by_default_no_gradient_is_lost_and_replicas_are_equal():
    """Half of the ranks start a round, and whoever is late is given all that it missed."""

    def program(comm):
        parameters = weights(2)
        with EagerOptimizer(sgd(parameters, lr=1.0), comm) as optimizer:
            for _ in range(4 + 2 * comm.rank):
                optimizer.zero_grad()
                backward(parameters, float(comm.size))
                optimizer.step()
        assert "Quorum(k=2" in repr(optimizer)
        return values(parameters)

    assert ranks(4, program) == [[{-(4.0 + 6.0 + 8.0 + 10.0)}]] * 4


def test_a_mean_of_metrics_after_uneven_steps():
    def program(comm):
        parameters = weights(1)
        with EagerOptimizer(sgd(parameters), comm, "quorum:2") as optimizer:
            for _ in range(1 + comm.rank):
                optimizer.zero_grad()
                backward(parameters, 1.0)
                optimizer.step()
            text = r"mean: flush first: .*'EagerOptimizer bucket 0.* On all ranks call optimizer\.flush\(\), then mean$"
            with pytest.raises(RuntimeError, match=text):
                comm.mean(1.0)
            number = optimizer.average(torch.tensor(float(comm.rank)))
            array = optimizer.average(torch.tensor([1, comm.rank]))
        return number, array.tolist()

    assert ranks(3, program) == [(1.0, [1.0, 1.0])] * 3


def test_the_end_of_a_training_whose_ranks_make_different_numbers_of_steps():
    def program(comm):
        parameters = weights(1)
        optimizer = EagerOptimizer(torch.optim.Adam(parameters), comm, "quorum:2", missed="latest")
        for _ in range(1 + comm.rank):
            optimizer.zero_grad()
            backward(parameters, 1.0 + comm.rank)
            optimizer.step()
        optimizer.finish()
        assert optimizer.closed
        with pytest.raises(pc.ClosedError):
            optimizer.finish()
        return comm.is_same_on_all_ranks(parameters[0].detach().numpy())

    assert ranks(3, program) == [True] * 3
