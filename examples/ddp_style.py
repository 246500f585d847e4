"""Train with PyTorch like a DistributedDataParallel script, but without waiting for the slowest rank.

    mpirun -n 4 python examples/ddp_style.py

With fewer cores than ranks, Open MPI needs `mpirun --oversubscribe`.

It has the usual parts: a DataLoader with a DistributedSampler, a learning rate that falls between epochs, validation
split over the ranks, and a checkpoint on rank 0. docs/howto/ddp.md shows the differences from DDP.
"""

import argparse
import os

import torch
from mpi4py import MPI
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import pycollectives as pc
from pycollectives.torch import EagerOptimizer


def disc(examples, seed):
    """Return points in a square; the label of a point is 1 if it is in a disc."""
    points = 2 * torch.rand(examples, 2, generator=torch.Generator().manual_seed(seed)) - 1
    return TensorDataset(points, (points.square().sum(dim=1) < 0.6).long())


def count_correct(model, dataset, rank, size):
    """Return the numbers of right predictions and of examples, for this rank's part of the examples."""
    points, labels = dataset[rank::size]
    with torch.no_grad():
        correct = int((model(points).argmax(dim=1) == labels).sum())
    return torch.tensor([correct, len(labels)], dtype=torch.float64)


def main():
    """Train, validate after each epoch, and evaluate the final model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, for each rank")
    parser.add_argument("--checkpoint", help="a file that rank 0 writes after each epoch")
    options = parser.parse_args()

    torch.set_num_threads(1)  # the ranks share the cores
    torch.manual_seed(1)
    train_set, validation_set = disc(4096, seed=1), disc(1001, seed=2)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    comm = pc.Communicator(MPI.COMM_WORLD, timeout=60.0)
    rank, size = comm.rank, comm.size
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, seed=1)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler, num_workers=options.workers)
    optimizer = EagerOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), comm)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

    history = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch
        for points, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
        optimizer.flush()  # the last late gradients, before the rate changes and the model is evaluated
        scheduler.step()
        correct, count = optimizer.average(count_correct(model, validation_set, rank, size))
        history.append(correct / count)
        if rank == 0 and options.checkpoint:
            state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, f"{options.checkpoint}.new")
            os.replace(f"{options.checkpoint}.new", options.checkpoint)  # a crash leaves the old file

    optimizer.finish()  # all ranks have the same model
    correct, count = comm.mean(count_correct(model, validation_set, rank, size))
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    is_same = comm.is_same_on_all_ranks(weights)
    if rank == 0:
        print(f"accuracy after each epoch: {' '.join(f'{accuracy:.3f}' for accuracy in history)}")
        print(f"{size} ranks, {options.epochs} epochs: accuracy {correct / count:.3f}, same on all ranks: {is_same}")
    comm.close()


if __name__ == "__main__":
    main()
