"""What is in the memory of gradients, and where averages can be written."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pycollectives.torch import memory  # noqa: E402
from pycollectives.torch.memory import OwnMemory, first_difference, overlaps_itself, same_bits  # noqa: E402


@pytest.mark.parametrize(
    ("tensor", "overlaps"),
    [
        (torch.zeros(()), False),
        (torch.zeros(2, 3), False),
        (torch.zeros(2, 3).t(), False),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), False),
        (torch.zeros(4, 6)[::2, 1::3], False),
        (torch.zeros(1).expand(1, 1), False),
        (torch.zeros(3, 1).expand(3, 4), True),
        (torch.zeros(1).expand(4)[:0], False),
        (torch.zeros(9).as_strided((3, 3), (2, 1)), True),
    ],
)
def test_whether_elements_share_memory(tensor, overlaps):
    assert overlaps_itself(tensor) == overlaps


def parameter_with(gradient):
    parameter = torch.nn.Parameter(torch.zeros(gradient.shape))
    parameter.grad = gradient
    return parameter


def test_which_gradients_have_memory_of_their_own():
    flat, one = torch.zeros(12), torch.ones(3)
    apart = [parameter_with(part) for part in (flat[:4], flat[4:8].view(2, 2).t())]
    same = [parameter_with(one) for _ in range(2)]
    crossing = [parameter_with(part) for part in (flat[8:11], flat[10:])]
    long = parameter_with(torch.zeros(6)[:5])
    within = parameter_with(long.grad[1:3])
    of_a_parameter = torch.nn.Parameter(torch.zeros(2))
    of_a_parameter.grad = of_a_parameter.detach()
    expanded = parameter_with(torch.ones(1).expand(3))
    without = torch.nn.Parameter(torch.zeros(2))
    shared = [*same, *crossing, long, within, of_a_parameter, expanded]
    own = OwnMemory([*apart, *shared, without])
    assert [parameter.grad in own for parameter in apart] == [True] * 2
    assert [parameter.grad in own for parameter in shared] == [False] * 8


NAN, OTHER_NAN = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    ("gradient", "part", "same"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), True),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), False),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (NAN, NAN.clone(), True),
        (NAN, OTHER_NAN, False),
        (torch.arange(6.0).view(2, 3).t(), torch.arange(6.0).view(2, 3).t().contiguous(), True),
        (torch.arange(6.0).view(2, 3).t(), torch.arange(6.0).view(3, 2), False),
        (torch.tensor([1.5], dtype=torch.bfloat16), torch.tensor([1.5]), True),
        (torch.tensor([1.5], dtype=torch.float16), torch.tensor([1.25]), False),
        (torch.zeros(0), torch.zeros(0), True),
    ],
)
def test_bits_are_compared(gradient, part, same, on_device, monkeypatch):
    equal = (torch.ones(3), torch.ones(3))
    monkeypatch.setattr(memory, "_is_on_device", lambda _: on_device)
    assert same_bits(gradient, part) == same
    assert first_difference([equal, (gradient, part), equal]) == (None if same else 1)


def test_shapes_are_compared():
    assert not same_bits(torch.zeros(2), torch.zeros(2, 1))
