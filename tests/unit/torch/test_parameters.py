"""Which parameters are averaged: groups, frozen layers, what is added later, and where they begin."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402


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
            assert len(optimizer._gradients.buckets) == 2
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
            assert len(optimizer._gradients.buckets) == 2

    ranks(2, program)


@pytest.mark.parametrize("comes", ["unfrozen", "behind its back"])
def test_what_is_trained_later_gets_a_bucket_and_is_an_error_before(comes):
    def program(comm):
        trained, later = parameters = weights(2, 2)
        later.requires_grad_(False)
        with eager(sgd(parameters if comes == "unfrozen" else [trained]), comm) as optimizer:
            later.requires_grad_(True)
            if comes != "unfrozen":
                optimizer.optimizer.add_param_group({"params": [later], "lr": 1.0})
            with pytest.raises(RuntimeError, match=r"parameter \d of group \d requires gradients.*add_unfrozen"):
                optimizer.step()
            optimizer.add_unfrozen()
            for _ in range(2):
                optimizer.zero_grad()
                backward(parameters, float(comm.rank))
                optimizer.step()
            optimizer.add_unfrozen()  # nothing is new
            assert len(optimizer._gradients.buckets) == 2
        return values(parameters)

    assert ranks(3, program) == [[{-2.0}] * 2] * 3


def test_ranks_that_unfroze_different_layers_are_told():
    def program(comm):
        parameters = weights(2, 3, 4)
        for parameter in parameters[1:]:
            parameter.requires_grad_(False)
        optimizer = eager(sgd(parameters), comm)
        parameters[1 if comm.rank == 0 else 2].requires_grad_(True)
        with pytest.raises(pc.MismatchError, match=r"add_unfrozen.*\(4,\) float64"):
            optimizer.add_unfrozen()
        for parameter in parameters[1:]:
            parameter.requires_grad_(False)
        optimizer.close()
        return optimizer.closed

    assert ranks(2, program) == [True, True]


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


@pytest.mark.parametrize("fault", ["differs", "is refused by the wrapped optimizer", "cannot be averaged"])
def test_a_parameter_group_that_one_rank_cannot_add_is_added_on_none(fault):
    def program(comm):
        parameters = weights(2)
        good = weights(3)
        bad = {
            "differs": (weights(4), pc.MismatchError, r"\(4,\) float64"),
            "is refused by the wrapped optimizer": (parameters, ValueError, "more than one parameter group"),
            "cannot be averaged": (weights(3, dtype=torch.complex64), TypeError, "got complex64"),
        }
        added, error, text = bad[fault] if comm.rank == 1 else (good, pc.MismatchError, "add_param_group: .*rank 1")
        with eager(sgd(parameters), comm) as optimizer:
            with pytest.raises(error, match=text):
                optimizer.add_param_group({"params": added})
            assert len(optimizer.param_groups) == 1
            optimizer.add_param_group({"params": good, "lr": 2.0})
            backward([*parameters, *good], 1.0)
            optimizer.step()
        return values([*parameters, *good])

    assert ranks(3, program) == [[{-1.0}, {-2.0}]] * 3


def test_parameters_of_rank_0_to_begin_with():
    def program(comm):
        parameters = [
            torch.nn.Parameter(torch.tensor([float(comm.rank), -0.0])),
            torch.nn.Parameter(torch.tensor([comm.rank + 5], dtype=torch.int64), requires_grad=False),
        ]
        with eager(sgd(parameters), comm):
            return [str(parameter.tolist()) for parameter in parameters]

    assert ranks(3, program) == [["[0.0, -0.0]", "[5]"]] * 3
