"""Measure push-pulls of a large model by all workers at once, through a parameter server and in mpi4py."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .errors import RunError
from .gossip import pattern, step_of
from .summary import Summary
from .timing import BLOCKS, SleepingBarrier
from .workers import ITEM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .output import Record
    from .server import Servers, Setting

    Weights = NDArray[np.float32]

SERVER = 0
"""All other ranks are workers, wherever the weights lie."""


class Subject(Protocol):
    """A server from which workers subtract gradients. Rank 0 only serves."""

    def exchange(self, gradient: Weights, out: Weights, times: int) -> None:
        """Make `times` consecutive push-pulls on each worker; on rank 0, serve them."""

    def read(self, out: Weights) -> None:
        """Read the weights after all push-pulls; collective."""

    def close(self) -> None:
        """Collective."""


class MpiServer:
    """A server in mpi4py: receives posted in advance, a subtraction in place, weights sent without a copy."""

    def __init__(self, comm: MPI.Comm, count: int) -> None:
        self._comm = comm
        self._weights = np.zeros(count, np.float32)
        self._incoming: list[Weights] = []
        self._requests: list[MPI.Prequest] = []
        if comm.rank == SERVER:
            self._incoming = [np.zeros(count, np.float32) for _ in range(1, comm.size)]
            self._requests = [comm.Recv_init(buffer, source) for source, buffer in enumerate(self._incoming, start=1)]

    def exchange(self, gradient: Weights, out: Weights, times: int) -> None:
        if self._comm.rank != SERVER:
            for _ in range(times):
                self._comm.Sendrecv(gradient, SERVER, recvbuf=out, source=SERVER)
            return
        left = [times] * len(self._requests)
        MPI.Prequest.Startall(self._requests)
        for _ in range(times * len(self._requests)):
            index = MPI.Request.Waitany(self._requests)
            np.subtract(self._weights, self._incoming[index], out=self._weights)
            left[index] -= 1
            if left[index]:
                self._requests[index].Start()  # before the reply, which triggers the next gradient
            self._comm.Send(self._weights, index + 1)

    def read(self, out: Weights) -> None:
        if self._comm.rank == SERVER:
            np.copyto(out, self._weights)
        self._comm.Bcast(out, SERVER)

    def close(self) -> None:
        for request in self._requests:
            request.Free()


class OurServer:
    """`comm.parameter_server` whose workers do not wait for each other."""

    def __init__(self, comm: pc.Communicator, count: int, servers: int | Literal["node"]) -> None:
        self._is_worker = comm.rank != SERVER
        self._server = comm.parameter_server(
            np.zeros(count, np.float32),
            sync=pc.servers.ASP(),
            update=pc.servers.SGD(rate=1.0),
            servers=servers,
            workers=list(range(1, comm.size)),
            nan="accept",  # the mpi4py program does not check either
        )

    def exchange(self, gradient: Weights, out: Weights, times: int) -> None:
        if self._is_worker:
            for _ in range(times):
                self._server.push_pull(gradient, out)

    def read(self, out: Weights) -> None:
        self._server.pull(out)

    def close(self) -> None:
        self._server.leave()


@dataclass(frozen=True)
class MicroCell:
    """Microseconds per push-pull, for consecutive push-pulls; a sample per block and worker."""

    latency: Summary
    baseline: Summary

    @property
    def speedup(self) -> float:
        return self.baseline.mean / self.latency.mean


def measure_push_pulls(comm: MPI.Comm, setting: Setting, servers: Servers) -> MicroCell | None:
    """Collective; None on all ranks but 0. Ours and MPI's take turns, in blocks."""
    count, iterations = setting.bytes // ITEM, setting.iterations
    gradient = pattern(count)
    gradient *= np.float32(step_of(comm.rank))
    out = np.zeros(count, np.float32)
    barrier = SleepingBarrier(comm)
    with pc.Communicator(comm, ranks_per_node=setting.domain.ranks_per_node) as communicator:
        subjects: dict[str, Subject] = {
            "ours": OurServer(communicator, count, servers.argument),
            "mpi": MpiServer(comm, count),
        }
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for block in range(BLOCKS + 1):  # the first is the warm-up
            for name, subject in subjects.items():
                barrier.wait()
                begin = time.perf_counter()
                subject.exchange(gradient, out, iterations)
                seconds = time.perf_counter() - begin
                barrier.wait()
                if block > 0:
                    times[name].append(1e6 * seconds / iterations)
        for name, subject in subjects.items():
            subject.read(out)
            if setting.verify:
                require_conserved(comm, name, out, (BLOCKS + 1) * iterations)
            subject.close()
    gathered = comm.gather(times)
    if gathered is None:
        return None
    ours, mpi = ([each[name] for each in gathered[1:]] for name in ("ours", "mpi"))
    return MicroCell(Summary.of(np.ravel(ours)), Summary.of(np.ravel(mpi)))


def require_conserved(comm: MPI.Comm, name: str, weights: Weights, pushes: int) -> None:
    """Raise RunError on every rank unless each gradient was subtracted exactly once (dyadic numbers); collective."""
    expected = -pushes * sum(step_of(rank) for rank in range(1, comm.size))
    said = weights / pattern(weights.size)
    wrong = None if (said == expected).all() else f"expected {expected:g}, got {said.min():g} to {said.max():g}"
    findings = [f"rank {rank}: {text}" for rank, text in enumerate(comm.allgather(wrong)) if text]
    if findings:
        raise RunError(f"{name}: the weights do not match the pushed gradients: {'; '.join(findings[:5])}")


def micro_record(setting: Setting, servers: Servers, cell: MicroCell) -> Record:
    """Return the keys of a cell; the caller adds the origin."""
    workers = setting.ranks - 1
    return {
        "bench": "server",
        "collective": "parameter_server",
        "sync": "asp",
        "mode": "micro",
        "servers": str(servers),
        "workers": workers,
        **setting.keys(),
        "latency_us": cell.latency.as_json(),
        "push_pulls_per_s": round(1e6 * workers / cell.latency.mean, 4),
        "baseline": "MPI_Recv_init, MPI_Send and MPI_Sendrecv",
        "baseline_us": cell.baseline.as_json(),
        "speedup": round(cell.speedup, 4),
        "verified": setting.verify,
    }
