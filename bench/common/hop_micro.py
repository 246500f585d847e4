"""Measure an update from one rank to another, through an update queue and through MPI with a queue on top."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .errors import RunError
from .summary import Summary
from .timing import BLOCKS, SleepingBarrier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .output import Record

SENDER, OWNER = 1, 0
ASLEEP = 1.0
"""Seconds for which the owner sleeps while an enqueue to it is timed."""


class MpiQueue:
    """Updates by Isend and Irecv: the slots of the update queue, receives posted in advance, a tag per slot."""

    def __init__(self, comm: MPI.Comm, count: int, max_ig: int) -> None:
        self._comm = comm
        self._slots = [np.zeros(count, np.float32) for _ in range(max_ig + 1)]
        self._requests = [MPI.REQUEST_NULL] * len(self._slots)
        if comm.rank == OWNER:
            self._requests = [comm.Irecv(slot, SENDER, tag) for tag, slot in enumerate(self._slots)]

    def enqueue(self, update: NDArray[np.float32], iteration: int) -> None:
        """Enqueue a copy of `update`, which may change at once."""
        tag = iteration % len(self._slots)
        self._requests[tag].Wait()
        np.copyto(self._slots[tag], update)
        self._requests[tag] = self._comm.Isend(self._slots[tag], OWNER, tag)

    def dequeue(self, iteration: int) -> NDArray[np.float32]:
        tag = iteration % len(self._slots)
        self._requests[tag].Wait()
        update = self._slots[tag].copy()
        self._requests[tag] = self._comm.Irecv(self._slots[tag], SENDER, tag)
        return update

    def close(self) -> None:
        if self._comm.rank == OWNER:
            for request in self._requests:
                request.Cancel()
        MPI.Request.Waitall(self._requests)


class OurQueue:
    """`comm.update_queue`."""

    def __init__(self, comm: pc.Communicator, count: int, max_ig: int) -> None:
        self._queue = comm.update_queue(np.zeros(count, np.float32), owner=OWNER, senders=[SENDER], max_ig=max_ig)

    def enqueue(self, update: NDArray[np.float32], iteration: int) -> None:
        self._queue.enqueue(update, iteration)

    def dequeue(self, iteration: int) -> NDArray[np.float32]:
        (received,) = self._queue.dequeue(1, iteration=iteration)
        return received.update

    def close(self) -> None:
        self._queue.leave()


@dataclass(frozen=True)
class MicroCell:
    ours: Summary  # microseconds from one update to the next, of blocks
    mpi: Summary
    asleep_us: float  # an enqueue while the owner sleeps


def measure_queues(
    comm: MPI.Comm, *, size: int, max_ig: int, iterations: int, ranks_per_node: int | None, verify: bool
) -> MicroCell | None:
    """Measure the queues; collective over two ranks. None on all ranks but the owner."""
    count = size // 4
    barrier = SleepingBarrier(comm)
    with pc.Communicator(comm, ranks_per_node=ranks_per_node) as communicator:
        queues = {"ours": OurQueue(communicator, count, max_ig), "mpi": MpiQueue(comm, count, max_ig)}
        times: dict[str, list[float]] = {name: [] for name in queues}
        done = dict.fromkeys(queues, 0)
        for block in range(BLOCKS + 1):  # the first is the warm-up
            for name, queue in queues.items():
                barrier.wait()
                seconds = _stream(comm, queue, count, done[name], iterations, verify)
                done[name] += iterations
                if block > 0:
                    times[name].append(1e6 * seconds / iterations)
        barrier.wait()
        asleep = 0.0
        if comm.rank == SENDER:
            update = np.ones(count, np.float32)
            time.sleep(ASLEEP / 4)
            begin = time.perf_counter()
            queues["ours"].enqueue(update, done["ours"])
            asleep = time.perf_counter() - begin
        else:
            time.sleep(ASLEEP)
            queues["ours"].dequeue(done["ours"])
        asleep = comm.bcast(asleep, root=SENDER)
        for queue in queues.values():
            queue.close()
    if comm.rank != OWNER:
        return None
    return MicroCell(*(Summary.of(np.array(times[name])) for name in ("ours", "mpi")), asleep_us=1e6 * asleep)


def _stream(comm: MPI.Comm, queue: OurQueue | MpiQueue, count: int, first: int, iterations: int, verify: bool) -> float:
    """Return the seconds in which `iterations` updates go from one rank to the other."""
    update = np.zeros(count, np.float32)
    begin = time.perf_counter()
    if comm.rank == SENDER:
        for iteration in range(first, first + iterations):
            update[0] = update[-1] = iteration % 1024
            queue.enqueue(update, iteration)
    elif comm.rank == OWNER:
        for iteration in range(first, first + iterations):
            received = queue.dequeue(iteration)
            if verify and not received[0] == received[-1] == iteration % 1024:
                raise RunError(f"update {iteration}: expected {iteration % 1024}, got {received[0]}, {received[-1]}")
    return time.perf_counter() - begin


def micro_record(cell: MicroCell, *, size: int, max_ig: int, iterations: int, path: str, verified: bool) -> Record:
    """Return the keys of a cell; the caller adds the origin."""
    return {
        "bench": "hop",
        "collective": "update_queue",
        "mode": "micro",
        "path": path,
        "ranks": 2,
        "bytes": size,
        "dtype": "float32",
        "max_ig": max_ig,
        "iterations": iterations,
        "latency_us": cell.ours.as_json(),
        "baseline": "MPI_Isend, MPI_Irecv and a queue",
        "baseline_us": cell.mpi.as_json(),
        "speedup": round(cell.mpi.p50 / cell.ours.p50, 4),
        "asleep_us": round(cell.asleep_us, 3),
        "verified": verified,
    }
