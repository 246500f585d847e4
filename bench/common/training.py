"""Training steps with PyTorch as subjects: on one rank, with an EagerOptimizer, and with DistributedDataParallel."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pycollectives as pc
from pycollectives.torch import EagerOptimizer
from pycollectives.train.torch_models.parallel import make_group
from pycollectives.train.torch_models.transformer import LanguageModel

from .cli import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLASSES = 10
SYMBOLS, CONTEXT = 96, 64  # of the transformer
BATCHES = 4  # of each rank, used in rotation
EVERYTHING = 1 << 62  # bytes of a bucket that is never full
MIB = 1 << 20
RATE = 0.01  # learning rate
TOLERANCE = 1e-2  # of the distance that weights have moved: one step in a hundred

Draw: TypeAlias = "Callable[[int, torch.Generator], tuple[torch.Tensor, torch.Tensor]]"
"""A function that returns inputs and labels of a batch of a given size."""


def mlp(width: int) -> nn.Sequential:
    """Return a perceptron of three hidden layers, for 28 by 28 pixels."""
    layers = [nn.Linear(784, width), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(width, CLASSES))


def cnn(width: int) -> nn.Sequential:
    """Return a network of three convolutions, each halving 32 by 32 pixels, and a hidden layer."""
    channels = [3, width, 2 * width, 4 * width]
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(channels):
        layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * width, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def transformer(width: int) -> nn.Module:
    """Return a transformer of two blocks, with one embedding table for inputs and predictions."""
    return LanguageModel(SYMBOLS, CONTEXT, width, depth=2, heads=4)


def images(*shape: int) -> Draw:
    """Draw random images, and a class for each."""
    return lambda count, draw: (
        torch.randn((count, *shape), generator=draw),
        torch.randint(CLASSES, (count,), generator=draw),
    )


def text(count: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw random symbols, and the symbol that follows each of them."""
    symbols = torch.randint(SYMBOLS, (count, CONTEXT + 1), generator=draw)
    return symbols[:, :-1], symbols[:, 1:]


class Network(NamedTuple):
    """A model, and its training data."""

    make: Callable[[int], nn.Module]
    width: int
    draw: Draw


NETWORKS = {
    "mlp": Network(mlp, 768, images(1, 28, 28)),
    "cnn": Network(cnn, 32, images(3, 32, 32)),
    "transformer": Network(transformer, 128, text),
}


Weights = NDArray[np.float32]


def weights_of(network: nn.Module) -> Weights:
    weights: Weights = nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
    return weights


@dataclass(frozen=True)
class Workload:
    """The work of each rank in a step."""

    model: str
    width: int
    batch: int  # of each rank
    seed: int
    bucket_bytes: int

    def __str__(self) -> str:
        size = "{bytes} bytes in {tensors} tensors".format(**self.size())
        return f"{self.model} of width {self.width}, {size}, batch {self.batch}"

    def size(self) -> dict[str, int]:
        parameters = [*self.network().parameters()]
        return {"bytes": sum(parameter.nbytes for parameter in parameters), "tensors": len(parameters)}

    def network(self) -> nn.Module:
        torch.manual_seed(self.seed)
        return NETWORKS[self.model].make(self.width)

    def batches(self, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        draw = torch.Generator().manual_seed(self.seed + 1 + rank)
        return [NETWORKS[self.model].draw(self.batch, draw) for _ in range(BATCHES)]

    def trained(self, ranks: int, steps: int) -> Weights:
        """Return the weights after synchronous SGD with the batches of all ranks, computed on this rank."""
        network = self.network()
        sgd = torch.optim.SGD(network.parameters(), lr=RATE)
        batches = [self.batches(rank) for rank in range(ranks)]
        for step in range(steps):
            sgd.zero_grad()
            for of_rank in batches:
                inputs, labels = of_rank[step % BATCHES]
                (nn.functional.cross_entropy(network(inputs), labels) / ranks).backward()
            sgd.step()
        return weights_of(network)


class Training:
    """One rank's steps, without other ranks."""

    name = "alone"

    def __init__(
        self, comm: MPI.Comm, workload: Workload, ranks_per_node: int | None, expected: Mapping[int, Weights] | None
    ) -> None:
        self._comm = comm
        self._workload = workload
        self._ranks_per_node = ranks_per_node
        self._expected = expected  # weights after a number of steps; None to skip the check
        self._batches = workload.batches(comm.rank)
        self._batch = self._batches[0]
        self._block = self._calls = 0
        self._open = contextlib.ExitStack()

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        self._block, self._calls = block, calls
        self._bare = self._workload.network()
        sgd = torch.optim.SGD(self._bare.parameters(), lr=RATE)
        self._network, self._optimizer = self._distributed(sgd)
        return self._step

    def _distributed(self, sgd: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return self._bare, sgd

    def _step(self) -> None:
        inputs, labels = self._batch
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self._network(inputs), labels).backward()
        self._optimizer.step()

    def prepare(self, call: int) -> None:
        self._batch = self._batches[call % BATCHES]

    def check(self, call: int, answer: Any) -> None:
        """Do nothing, since weights are checked when the block ends."""

    def close(self) -> None:
        self._open.close()
        if self._expected is not None:
            self._verify(self._expected[self._calls])

    def _verify(self, expected: Weights) -> None:
        """Do nothing, since there are no other ranks to agree with."""


class Together(Training):
    """Synchronous training, in which all ranks have the same weights after each step."""

    def _verify(self, expected: Weights) -> None:
        weights, first = weights_of(self._bare), weights_of(self._workload.network())
        same = np.array_equal(weights, self._comm.bcast(weights))
        near = np.linalg.norm(weights - expected) <= TOLERANCE * np.linalg.norm(expected - first)
        if not self._comm.allreduce(same and bool(near), MPI.LAND):
            raise RunError(f"{self.name}: the weights after block {self._block} are not those of synchronous SGD")


class After(Together):
    """EagerOptimizer that contributes one bucket after backward."""

    name = "after"

    def _distributed(self, sgd: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return self._bare, self._eager(sgd, overlap=False, bucket_bytes=EVERYTHING)

    def _eager(self, sgd: torch.optim.Optimizer, **options: Any) -> EagerOptimizer:
        communicator = self._open.enter_context(pc.Communicator(self._comm, ranks_per_node=self._ranks_per_node))
        return self._open.enter_context(EagerOptimizer(sgd, communicator, pc.Full(), **options))


class Overlap(After):
    """EagerOptimizer that contributes each bucket during backward."""

    name = "overlap"

    def _distributed(self, sgd: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return self._bare, self._eager(sgd, overlap=True, bucket_bytes=self._workload.bucket_bytes)


class Ddp(Together):
    """DistributedDataParallel over gloo, whose threads stay until the program ends."""

    name = "ddp"

    def _distributed(self, sgd: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        if not dist.is_initialized():
            make_group(self._comm)
        return DistributedDataParallel(self._bare, bucket_cap_mb=self._workload.bucket_bytes / MIB), sgd


METHODS: dict[str, type[Training]] = {method.name: method for method in (Training, After, Overlap, Ddp)}
