"""How gradients on a device reach the partial allreduce, and the streams of what comes back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.support.native import core  # noqa: E402
from pycollectives.testing import run_ranks  # noqa: E402
from pycollectives.torch import EagerOptimizer, means  # noqa: E402
from pycollectives.torch.host_copy import HostCopy  # noqa: E402

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def cuda(monkeypatch):
    """The engine's CUDA, which is off for a reason if this is called with one."""
    return lambda reason="": monkeypatch.setattr(core, "cuda_availability", lambda: {"reason": reason})


def test_memory_of_gradients(cuda):
    cuda()
    assert means.memory_for(CPU, None) == ("host", "")
    assert means.memory_for(CPU, True) == ("staged", "")
    assert means.memory_for(CUDA, None) == ("device", "")
    assert means.memory_for(CUDA, False) == ("device", "")
    assert means.memory_for(CUDA, True) == ("staged", "")


def test_what_the_engine_does_not_take_is_staged_and_says_why(cuda):
    text = "CUDA is off in pycollectives: no driver"
    cuda("no driver")
    assert means.memory_for(CUDA, None) == ("staged", text)
    assert means.memory_for(CUDA, True) == ("staged", "")
    with pytest.raises(ValueError, match=f"staged: expected True or None, got False: {text}"):
        means.memory_for(CUDA, False)


def test_a_communicator_that_continues_keeps_gradients_on_the_host(cuda):
    cuda()
    assert means.memory_for(CPU, None, continues=True) == ("host", "")
    memory, why = means.memory_for(CUDA, None, continues=True)
    assert memory == "staged"
    assert "on_failure='continue'" in why
    with pytest.raises(ValueError, match="got False: contributions are kept on the host"):
        means.memory_for(CUDA, False, continues=True)


class Stream:
    """Of PyTorch, with what it waits for."""

    def __init__(self, cuda_stream, device=None):
        self.cuda_stream = cuda_stream
        self.waits_for = []

    def wait_stream(self, other):
        self.waits_for.append(other.cuda_stream)


@pytest.mark.parametrize(("written_on", "current", "waits_for"), [(7, 7, []), (1, 0, []), (7, 9, [7]), (7, 0, [7])])
def test_pytorchs_stream_waits_for_a_result_that_is_written_on_another(monkeypatch, written_on, current, waits_for):
    """0 is PyTorch's default stream, and 1 the protocol's number of it."""
    stream = Stream(current)
    result = SimpleNamespace(__cuda_array_interface__={"stream": written_on})
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)
    monkeypatch.setattr(torch, "as_tensor", lambda given, device: (given, device))
    assert means._tensor_on(result, CUDA) == (result, CUDA)
    assert stream.waits_for == waits_for


@pytest.mark.parametrize("kind", [means.HostMean, means.StagedMean])
def test_results_are_written_and_added(kind):
    """Whatever was contributed in between: a rank that is late arrives again, with zeros, before it adds."""

    def program(comm):
        like = torch.zeros(2)
        mean, out = kind(comm, like, policy=pc.Full()), torch.full((2,), 9.0)
        mean.contribute(torch.tensor([1.0, 2.0]) * (1 + comm.rank)).wait(timeout=30.0)
        assert mean.write_to(out) is out
        mean.contribute(torch.tensor([10.0, 20.0])).wait(timeout=30.0)
        written = out.tolist()
        mean.add_to(out)
        mean.flush(timeout=30.0)
        mean.leave()
        return written, out.tolist(), like.tolist()

    assert run_ranks(2, program) == [([1.5, 3.0], [11.5, 23.0], [0.0, 0.0])] * 2


def test_a_host_copy_is_fetched_and_put():
    tensor = torch.arange(6.0).reshape(2, 3)
    copy = HostCopy(tensor)
    assert copy.array.tolist() == [[0.0] * 3] * 2
    assert copy.fetch(tensor) is copy.array
    copy.array += 1
    assert tensor.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    copy.put(tensor)
    assert tensor.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("staged", [None, True])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_gradients_of_every_shape_and_type(dtype, staged, shape):
    """The mean is of float32; NumPy makes a scalar of an element without dimensions."""

    def program(comm):
        parameter = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        sgd = torch.optim.SGD([parameter], lr=1.0)
        with EagerOptimizer(sgd, comm, pc.Full(), staged=staged) as optimizer:
            parameter.grad = torch.full(shape, 1.0 + 2 * comm.rank, dtype=dtype)
            optimizer.step()
        return parameter.detach().float()

    for found in run_ranks(2, program):
        assert torch.equal(found, torch.full(shape, -2.0))
