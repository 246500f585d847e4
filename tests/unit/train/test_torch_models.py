"""The models in PyTorch: parameters and gradients are views of flat arrays, also below DistributedDataParallel."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from model_contract import ModelContract, batch_of, step  # noqa: E402
from small_networks import DATA, MODELS, images  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from pycollectives.train.datasets.characters import characters  # noqa: E402
from pycollectives.train.datasets.sequences import sequences  # noqa: E402
from pycollectives.train.models.mlp import MLP  # noqa: E402
from pycollectives.train.torch_models.cnn import CNN  # noqa: E402
from pycollectives.train.torch_models.lstm import LSTM  # noqa: E402
from pycollectives.train.torch_models.mlp import TorchMLP  # noqa: E402
from pycollectives.train.torch_models.network import TorchModel  # noqa: E402
from pycollectives.train.torch_models.resnet import Block, ResNet  # noqa: E402
from pycollectives.train.torch_models.transformer import Transformer  # noqa: E402
from pycollectives.train.torch_models.vgg import VGG  # noqa: E402


@pytest.fixture(params=MODELS)
def make(request):
    """Makes a small data set and a model."""

    def make(seed=0):
        data = DATA[request.param]()
        return data, MODELS[request.param](data, seed)

    return make


# ---- flat arrays


class TestEveryModel(ModelContract):
    pass


def test_the_flat_weights_are_all_parameters(make):
    _, model = make()
    assert model.weights.size == sum(parameter.numel() for parameter in model.network.parameters())


def test_network_computes_with_the_flat_weights(make):
    data, model = make()
    _, other = make(seed=1)
    expected = other.forward(*batch_of(data))
    assert model.forward(*batch_of(data)) != expected
    model.weights[:] = other.weights
    assert model.forward(*batch_of(data)) == expected


def test_gradient_is_autograds(make):
    data, model = make()
    batch = batch_of(data)
    *inputs, labels = map(torch.from_numpy, batch)
    loss = functional.cross_entropy(model.network(*inputs), labels)
    expected = torch.cat([g.ravel() for g in torch.autograd.grad(loss, [*model.network.parameters()])]).numpy()
    assert model.forward(*batch) == pytest.approx(float(loss.detach()))
    model.backward()
    np.testing.assert_array_equal(model.gradient, expected)
    assert (model.gradient != 0).any()


def test_the_perceptron_of_pytorch_is_that_of_numpy():
    data = images(4)
    ours, theirs = (kind(data, hidden=5, depth=2, seed=3) for kind in (MLP, TorchMLP))
    batch = batch_of(data)
    assert theirs.forward(*batch) == pytest.approx(ours.forward(*batch), rel=1e-5)
    theirs.backward()
    ours.backward()
    # PyTorch's matrices are transposed.
    sums = [abs(model.gradient).sum() for model in (ours, theirs)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)
    assert theirs.evaluate(*batch) == pytest.approx(ours.evaluate(*batch), rel=1e-5)


def test_backward_needs_a_forward(make):
    data, model = make()
    with pytest.raises(RuntimeError, match="backward: expected a call of forward"):
        model.backward()
    step(model, batch_of(data))
    with pytest.raises(RuntimeError, match="backward: expected a call of forward"):
        model.backward()


def test_other_types_are_refused():
    with pytest.raises(ValueError, match=r"expected float32 parameters, got \['torch.float64'\]"):
        TorchModel(lambda: nn.Linear(2, 2).double(), seed=0)


# ---- seeds


def test_a_buffer_that_numpy_cannot_hold_is_named():
    def make():
        network = nn.Linear(2, 2)
        network.register_buffer("table", torch.ones(2, dtype=torch.bfloat16))
        return network

    with pytest.raises(TypeError, match=r"buffer 'table', of torch\.bfloat16: "):
        TorchModel(make, seed=0)


def test_seed_decides_nothing_else(make):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    make(seed=1)
    assert torch.rand(1) == expected


def test_same_steps_same_bits(make):
    weights = []
    for _ in range(2):
        data, model = make()
        for start in (0, 8, 16):
            step(model, batch_of(data, slice(start, start + 8)))
        weights.append(model.weights)
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize(
    ("environment", "threads"), [pytest.param({}, "1", marks=pytest.mark.nightly), ({"OMP_NUM_THREADS": "2"}, "2")]
)
def test_one_thread_unless_told_otherwise(environment, threads):
    program = (
        "import torch\n"
        "from pycollectives.train.torch_models.network import TorchModel\n"
        "TorchModel(lambda: torch.nn.Linear(1, 1), 0)\n"
        "print(torch.get_num_threads())\n"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=kept | environment)
    assert (done.stdout.strip(), done.stderr) == (threads, "")


# ---- evaluation and state


def test_evaluate_changes_nothing(make):
    data, model = make()
    step(model, batch_of(data))
    weights, gradient, state = model.weights.copy(), model.gradient.copy(), model.state()
    model.forward(*batch_of(data))
    after_forward = model.state()
    score = model.evaluate(*data.validation)
    np.testing.assert_array_equal(model.weights, weights)
    np.testing.assert_array_equal(model.gradient, gradient)
    for name, value in model.state().items():
        np.testing.assert_array_equal(value, after_forward[name])
    assert all(module.training for module in model.network.modules())
    assert score == model.evaluate(*data.validation)
    model.backward()
    model.load_state(state)
    model.network.eval()
    *inputs, labels = map(torch.from_numpy, data.validation)
    logits = model.network(*inputs)
    assert score.loss == pytest.approx(float(functional.cross_entropy(logits, labels).detach()), rel=1e-2)


def test_evaluate_uses_running_statistics_in_chunks():
    data = images(8, count=700)
    model = ResNet(data, depth=8, width=4)
    for start in range(0, 700, 50):
        model.forward(*batch_of(data, slice(start, start + 50)))
    model.network[1].eval()
    score = model.evaluate(*data.train)
    assert not model.network[1].training  # a layer that somebody has frozen
    assert model.network[2].training
    model.network.eval()
    pixels, labels = map(torch.from_numpy, data.train)
    with torch.no_grad():
        logits = model.network(pixels)
    assert score.loss == pytest.approx(float(functional.cross_entropy(logits, labels)), rel=1e-5)
    assert score.accuracy == pytest.approx(float((logits.argmax(dim=1) == labels).float().mean()))


def test_state_resumes_exactly(make):
    data, model = make(seed=1)
    step(model, batch_of(data))
    weights, state = model.weights.copy(), model.state()
    step(model, batch_of(data, slice(8, 16)))
    _, resumed = make(seed=2)
    resumed.weights[:] = weights
    resumed.load_state(state)
    step(resumed, batch_of(data, slice(8, 16)))
    np.testing.assert_array_equal(resumed.weights, model.weights)
    assert resumed.evaluate(*data.validation) == model.evaluate(*data.validation)
    for name, value in model.state().items():
        np.testing.assert_array_equal(resumed.state()[name], value)


def test_state_of_another_network_is_refused():
    model = ResNet(images(8), depth=8, width=4)
    assert "1.running_mean" in model.state()
    with pytest.raises(ValueError, match=r"expected the buffers \['1.num_batches_tracked', .*, got \[\]"):
        model.load_state({})


# ---- the networks


def test_one_batch_is_learnt(make):
    data, model = make()
    first = model.forward(*batch_of(data))
    for _ in range(100):
        step(model, batch_of(data), rate=0.1)
    assert model.forward(*batch_of(data)) < first / 2


def test_sizes_are_those_of_the_papers():
    data = images(32)
    assert ResNet(data).weights.size == 464_154
    assert VGG(data).weights.nbytes == pytest.approx(58.9e6, rel=1e-3)
    assert VGG(data, width=26).weights.nbytes / 2**20 == pytest.approx(9.28, abs=0.005)
    for model, convolutions in ((ResNet(data), 31), (VGG(data, width=2), 13)):
        assert sum(isinstance(layer, nn.Conv2d) for layer in model.network.modules()) == convolutions
        assert sum(isinstance(layer, nn.Linear) for layer in model.network.modules()) == 1


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"expected a depth of 6 n \+ 2, .* got 18"):
        ResNet(images(8), depth=18)
    with pytest.raises(ValueError, match="expected images of 32 x 32 pixels, got 8 x 8"):
        VGG(images(8))


def test_shortcut_halves_and_pads():
    block = Block(2, 4).eval()
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(3, 2, 6, 6)
    expected = torch.cat([x[:, :, ::2, ::2], torch.zeros(3, 2, 3, 3)], dim=1)
    torch.testing.assert_close(block(x), expected)


def test_padding_is_not_computed():
    data = sequences(examples=16, validation=4, features=3)
    padded, lengths, labels = data.train
    model = LSTM(data, hidden=8)
    loss = model.forward(padded, lengths, labels)
    spoilt = padded.copy()
    spoilt[np.arange(padded.shape[1]) >= lengths[:, np.newaxis]] = np.nan
    assert np.isnan(spoilt).any()
    assert model.forward(spoilt, lengths, labels) == loss
    model.backward()
    assert np.isfinite(model.gradient).all()
    one = model.forward(padded[5:6, : lengths[5]], lengths[5:6], labels[5:6])
    assert one == pytest.approx(model.forward(padded[5:6], lengths[5:6], labels[5:6]))


def test_the_transformer_does_not_see_what_follows():
    data = characters(examples=2, validation=2, context=8)
    network = Transformer(data, width=8, heads=2).network
    pieces = torch.from_numpy(data.train[0])
    changed = pieces.clone()
    changed[:, 5] = (pieces[:, 5] + 1) % network.symbol.num_embeddings
    before, after = network(pieces), network(changed)
    torch.testing.assert_close(before[..., :5], after[..., :5])
    assert (before[..., 5:] != after[..., 5:]).any(dim=(0, 1)).all()


def test_the_transformer_refuses_a_width_that_its_heads_do_not_divide():
    with pytest.raises(ValueError, match="expected a width that is a multiple of 4 heads, got 6"):
        Transformer(characters(examples=2, validation=2), width=6)


def test_a_score_is_per_prediction(make):
    data, model = make()
    score = model.evaluate(*data.validation)
    *inputs, labels = map(torch.from_numpy, data.validation)
    model.network.eval()
    logits = model.network(*inputs)
    assert score.loss == pytest.approx(float(functional.cross_entropy(logits, labels).detach()), rel=1e-5)
    assert score.accuracy == pytest.approx(float((logits.argmax(dim=1) == labels).double().mean()))


# ---- DistributedDataParallel

DDP = """
import sys
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.torch_models.resnet import ResNet

file, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(0)
pixels, labels = random.standard_normal((16, 3, 8, 8), dtype=np.float32), np.arange(16) % 10
data = Dataset((pixels, labels), (pixels, labels))
batches = [(pixels[first : first + 4], labels[first : first + 4]) for first in (0, 4, 8, 12)]

# What it should be: mean gradients of replicas, each with its own running statistics.
alone = [ResNet(data, depth=8, width=4) for _ in range(size)]
losses = []
for step in range(2):
    losses.append([model.forward(*batches[2 * step + r]) for r, model in enumerate(alone)])
    for model in alone:
        model.backward()
    mean = np.mean([model.gradient for model in alone], axis=0)
    for model in alone:
        model.weights -= 0.1 * mean

dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=size)
model = ResNet(data, depth=8, width=4, seed=rank)  # DDP gives all the weights of rank 0
model.network = DistributedDataParallel(model.network, broadcast_buffers=False)
for step in range(2):
    loss = model.forward(*batches[2 * step + rank])
    assert abs(loss - losses[step][rank]) < 1e-5, (loss, losses)
    model.backward()
    model.weights -= 0.1 * model.gradient
np.testing.assert_allclose(model.gradient, mean, atol=1e-5)
np.testing.assert_allclose(model.weights, alone[rank].weights, atol=1e-5)
assert model.state().keys() == alone[rank].state().keys()
np.testing.assert_allclose(model.state()["1.running_mean"], alone[rank].state()["1.running_mean"], atol=1e-5)
if rank == size - 1:  # alone: no collective operation is hidden in it
    assert abs(model.evaluate(*data.validation).loss - alone[rank].evaluate(*data.validation).loss) < 1e-4
dist.barrier()
dist.destroy_process_group()
print("done")
"""


needs_distributed = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"
)


@needs_distributed
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_below_distributed_data_parallel(tmp_path, size):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(tmp_path / "meeting"), str(rank), str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            output, errors = rank.communicate(timeout=90)
            assert (rank.returncode, output) == (0, "done\n"), errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def distributed(model, *places):
    """Made on rank 0, where the others say that these are their places in the process group."""
    from pycollectives.train.torch_models.parallel import Distributed

    comm = SimpleNamespace(rank=0, size=1 + len(places))
    comm.allgather, comm.bcast = lambda mine: [mine, *places], lambda mine: mine
    return Distributed(comm, model)


@needs_distributed
def test_a_process_group_that_is_there_is_used_if_it_has_the_ranks_of_the_job(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    model = CNN(images(8, channels=1), width=4)
    bare = model.network
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="ddp: rank 0 of 2 is 0 of 1 in the default process group"):
            distributed(model, (0, 1))
        assert model.network is bare
        fits = distributed(model)
        assert model.network is not bare
        fits.close()
        assert model.network is bare
        assert torch.distributed.is_initialized()
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(ValueError, match="ddp: rank 0 of 2 is missing in the default process group"):
        distributed(model, (1, 2))


@needs_distributed
def test_a_model_that_is_not_distributed_leaves_no_process_group(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    model = CNN(images(8, channels=1), width=4)
    bare = model.network.requires_grad_(False)
    with pytest.raises(RuntimeError, match="DistributedDataParallel is not needed"):
        distributed(model)
    assert model.network is bare
    assert not torch.distributed.is_initialized()


@needs_distributed
def test_the_environment_is_as_it_was_when_a_group_is_made(monkeypatch):
    """A later group of the same process may span hosts."""
    from pycollectives.train.torch_models.parallel import make_group

    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    comm = SimpleNamespace(rank=0, size=1, allgather=lambda mine: [mine], bcast=lambda mine: mine)
    make_group(comm)
    torch.distributed.destroy_process_group()
    assert "GLOO_SOCKET_IFNAME" not in os.environ
