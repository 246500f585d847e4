"""A model's network in PyTorch's DistributedDataParallel, over gloo."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .network import TorchModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpi4py import MPI

    from ..models.base import Model

TIMEOUT = timedelta(minutes=10)
INTERFACE = "GLOO_SOCKET_IFNAME"


class Distributed:
    """Until this object is closed, backward passes of a model average gradients over all ranks; creation is collective.

    PyTorch has one default process group in a program. An existing group is used, and not closed. If its ranks differ
    from comm's, all ranks raise ValueError.
    """

    def __init__(self, comm: MPI.Comm, model: Model) -> None:
        if not isinstance(model, TorchModel):
            raise ValueError(f"ddp: expected a PyTorch model, got {type(model).__name__}")
        self._made_group = not _has_group(comm)
        if self._made_group:
            make_group(comm)
        self._model, self._network = model, model.network
        try:
            model.network = DistributedDataParallel(model.network)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Restore the model's network, and end the group. PyTorch may keep the group's threads until the next group."""
        self._model.network = self._network
        if self._made_group:
            dist.destroy_process_group()


def make_group(comm: MPI.Comm) -> None:
    """Create PyTorch's default process group over gloo, with the ranks of comm; collective."""
    hosts = set(comm.allgather(socket.gethostname()))
    is_local = len(hosts) == 1
    store = _store(comm, "127.0.0.1" if is_local else comm.bcast(socket.gethostname()))
    with _loopback_interface() if is_local else nullcontext():
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)


@contextmanager
def _loopback_interface() -> Iterator[None]:
    """Make gloo use the loopback interface in the block, unless the user has set one. Later groups may span hosts."""
    if INTERFACE in os.environ:
        yield
        return
    os.environ[INTERFACE] = "lo"
    try:
        yield
    finally:
        del os.environ[INTERFACE]


def _has_group(comm: MPI.Comm) -> bool:
    """Whether there is a process group; collective. ValueError unless it has the ranks of comm, in the same order."""
    places = comm.allgather((dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else None)
    if not any(places):
        return False
    for rank, place in enumerate(places):
        if place != (rank, comm.size):
            there = "missing" if place is None else "{} of {}".format(*place)
            raise ValueError(
                f"ddp: rank {rank} of {comm.size} is {there} in the default process group of torch.distributed, which "
                "exists already: this group must have the ranks of this job, or not exist"
            )
    return True


def _store(comm: MPI.Comm, host: str) -> dist.TCPStore:
    """Return the store through which ranks find each other, at a free port of rank 0."""
    server = dist.TCPStore(host, 0, comm.size, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(server.port if server else None)
    return server or dist.TCPStore(host, port, comm.size, is_master=False)
