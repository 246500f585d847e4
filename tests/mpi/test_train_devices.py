"""Training where methods do not see the arrays that a model computes with: staged, or tensors.

There is no device in it: tensors of the host take the same ways. tests/gpu trains on a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from train_devices import arrays_in  # noqa: E402
from train_jobs import BATCH, EVERY_METHOD, P, after, refused_everywhere, train, weights_in  # noqa: E402

from pycollectives.train.datasets import DATASETS  # noqa: E402
from pycollectives.train.datasets.base import Dataset  # noqa: E402

STEPS = 6
TAKES_TENSORS = ["eager,policy=full", f"m-synchronous,m={P}"]
"""Of which each step waits for all, so that the weights of two runs can be compared."""


def pixels():
    """Images of four by four pixels, of three classes."""
    random = np.random.default_rng(0)
    labels = np.arange(P * BATCH * STEPS) % 3
    images = random.standard_normal((len(labels), 1, 4, 4)) + labels[:, None, None, None]
    return Dataset((images.astype(np.float32), labels), (images[:9].astype(np.float32), labels[:9]))


DATASETS.add("pixels", f"{__name__}:pixels")
GIVEN = {"data": "pixels", "epochs": 1, "model": "cnn,width=2"}


def trained(comm, method, output, memory, **options):
    with arrays_in(memory):
        return train(comm, method, output, **{**GIVEN, **options})


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_method_trains_with_staged_arrays(comm, method):
    summary = trained(comm, method, None, "staged")
    assert (summary.finished, summary.steps, summary.not_finite) == (True, STEPS, 0)
    assert summary.is_same_on_all_ranks


@pytest.mark.parametrize("method", ["synchronous", "d-psgd"])
def test_staged_weights_are_those_of_the_host_bit_for_bit(comm, output, method):
    for memory in ("host", "staged"):
        trained(comm, method, output / memory, memory, optimizer="sgd,rate=0.1,momentum=0.9")
    assert weights_in(output / "staged").tobytes() == weights_in(output / "host").tobytes()


@pytest.mark.parametrize("optimizer", ["sgd,rate=0.1,momentum=0.9,weight_decay=0.01", "adam"])
@pytest.mark.parametrize("method", TAKES_TENSORS)
def test_methods_that_take_tensors(comm, output, method, optimizer):
    for memory in ("host", "device"):
        summary = trained(comm, method, output / memory, memory, optimizer=optimizer, settle_epochs=0.5)
        assert summary.is_same_on_all_ranks
    np.testing.assert_allclose(weights_in(output / "device"), weights_in(output / "host"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["ad-psgd", "a2cid2,topology=ring", "ripples"])
def test_methods_that_average_tensors(comm, output, method):
    summary = trained(comm, method, output, "device", epochs=3, settle_epochs=1.5, optimizer="adam")
    assert summary.finished
    assert summary.is_same_on_all_ranks
    assert summary.curve[-1].loss < summary.curve[0].loss


@pytest.mark.parametrize(("method", "there"), [("synchronous", "staged"), ("eager,policy=full", "device")])
def test_a_checkpoint_is_resumed_on_another_device(comm, output, method, there):
    """In the middle of an epoch, there and back; synchronous with the bits of a training that was never stopped."""
    given = {"optimizer": "adam", "epochs": 2, "resume": True}
    for memory, device in ((there, "cuda"), ("host", "cpu"), (there, "cuda:1")):
        stop = after(3, rank=0)
        assert not trained(comm, method, output / "moved", memory, device=device, signalled=stop, **given).finished
    summary = trained(comm, method, output / "moved", "host", **given)
    assert summary.finished
    assert summary.is_same_on_all_ranks
    if method == "synchronous":
        trained(comm, method, output / "undisturbed", "host", **given)
        assert weights_in(output / "moved").tobytes() == weights_in(output / "undisturbed").tobytes()


def test_a_device_that_cannot_be_used_is_an_error_on_all_ranks(comm, output):
    text = "device cuda: model 'mlp' computes with NumPy, on the host"
    refused_everywhere(text, lambda: train(comm, "synchronous", output, device="cuda"))
    if not torch.backends.cuda.is_built():
        text = r"device cuda: PyTorch .* was built without CUDA"
        refused_everywhere(text, lambda: train(comm, "synchronous", output, **GIVEN, device="cuda"))
    assert not any(output.iterdir())
