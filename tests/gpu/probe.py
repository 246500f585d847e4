"""Checks what all tests and benchmarks on a GPU rely on.

    mpirun -n 2 python tests/gpu/probe.py kernels processes streams

Rank 0 prints one line of JSON after each check. `--simulated` tries the program out on the simulated driver.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "cuda"))

import numpy as np
from device_programs import OnDevice, simulated_device
from devices import Gpu, Host, bits
from mpi4py import MPI
from test_kernels import PAIRS, draw, folded
from timed import WORLD, Options, Pinned, Worker

import pycollectives as pc
from pycollectives._version import commit
from pycollectives.support.native import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

Found = dict[str, Any]
STEPS = 10
SHARED_BLOCK = 1 << 19
"""Elements: drivers share blocks of 2 MiB."""


def kernels(machine: Host, count: int) -> Found:
    """Reductions of every kind, whose bits must be those of the host."""
    del count
    draws = np.random.default_rng(1)
    wrong = []
    for op, dtype in PAIRS:
        arrays = [draw(draws, dtype, 1001) for _ in range(5)]
        on_host, on_device = (folded(one, dtype, op, arrays, 5 if op == "AVG" else 1) for one in (Host(), machine))
        if not np.array_equal(bits(on_host), bits(on_device)):
            wrong.append(f"{op} of {dtype}")
    return {"right": not wrong, "kinds": len(PAIRS), "wrong": wrong}


def processes(machine: Host, count: int) -> Found:
    """Ranks read and write each other's memory, which CUDA IPC maps."""
    count += -count % SHARED_BLOCK
    values = np.arange(count, dtype=np.float32)
    mine = machine.put(values + WORLD.rank)
    handles = WORLD.allgather(machine.executor.share(mine.address))
    mapped = {rank: machine.executor.map(handle) for rank, handle in enumerate(handles) if rank != WORLD.rank}
    worker, host = Worker(machine.executor), Pinned(machine.executor, count)

    def matches(address: int, expected: NDArray[np.float32]) -> bool:
        host.values[:] = -1
        worker.stream.copy(host.address, address, 4 * count)
        worker.synchronize()
        return np.array_equal(host.values, expected)

    read = [matches(block.address, values + rank) for rank, block in mapped.items()]
    WORLD.Barrier()
    after = (WORLD.rank + 1) % WORLD.size
    if after in mapped:
        host.values[:] = -values - WORLD.rank
        worker.stream.copy(mapped[after].address, host.address, 4 * count)
        worker.synchronize()
    WORLD.Barrier()
    written = WORLD.size == 1 or matches(mine.address, -values - (WORLD.rank - 1) % WORLD.size)
    for block in mapped.values():
        block.free()
    WORLD.Barrier()
    mine.free()
    host.free()
    return {"right": all(read) and written, "read": all(read), "written": written}


def streams(machine: Host, count: int) -> Found:
    """A stream waits for an event of another; queuing takes less time than the work."""
    first, second = Worker(machine.executor), Worker(machine.executor)
    source, target = machine.put(np.full(count, 7, np.float32)), machine.put(np.zeros(count, np.float32))
    host, event = Pinned(machine.executor, count), machine.executor.new_event()
    begin = time.perf_counter()
    for _ in range(STEPS):
        first.stream.weighted_sum("float32", [target.address], [target.address, source.address], [1, 1], count)
    first.stream.record(event)
    second.stream.wait(event)
    second.stream.copy(host.address, target.address, 4 * count)
    queued = time.perf_counter() - begin
    second.synchronize()
    done = time.perf_counter() - begin
    right = bool((host.values == 7 * STEPS).all())
    for memory in (source, target, host):
        memory.free()
    return {"right": right, "queued_s": queued, "done_s": done}


def averaged(x: Any, fill: Callable[[float], None], to_host: Callable[[Any], NDArray[np.float32]]) -> Found:
    """An allreduce takes values as their stream makes them, and they may be overwritten at once."""
    right = []
    with (
        pc.Communicator(WORLD, ranks_per_node="all") as comm,
        comm.partial_allreduce(x, op=pc.AVG, policy=pc.Full()) as collective,
    ):
        for step in range(STEPS):
            fill(WORLD.rank + step)
            handle = collective.contribute(x)
            fill(-1)
            handle.wait()
            right.append(bool((to_host(collective.result) == (WORLD.size - 1) / 2 + step).all()))
    return {"right": all(right), "steps": right}


def arrays(machine: Host, count: int) -> Found:
    """Of the tests themselves, for which the simulated driver serves too."""
    x = OnDevice(machine, np.zeros(count, np.float32))
    found = averaged(x, lambda value: x.write(np.full(count, value)), lambda result: result.to_host())
    x.free()
    return found


def cupy(machine: Host, count: int) -> Found:
    import cupy as library

    del machine
    library.cuda.Device(device_of_rank()).use()
    with library.cuda.Stream(non_blocking=True):
        x = library.zeros(count, "float32")
        return averaged(x, x.fill, lambda result: library.asarray(result).get())


def torch(machine: Host, count: int) -> Found:
    import torch as library

    del machine
    library.cuda.set_device(device_of_rank())
    with library.cuda.stream(library.cuda.Stream()):
        x = library.zeros(count, device="cuda")
        return averaged(x, x.fill_, lambda result: library.as_tensor(result, device="cuda").cpu().numpy())


def device_of_rank() -> int:
    return WORLD.rank % len(core.cuda_availability()["devices"])


CHECKS = {check.__name__: check for check in (kernels, processes, streams, arrays, cupy, torch)}


@contextlib.contextmanager
def device(options: Options) -> Iterator[Host]:
    if options.simulated:
        with simulated_device(WORLD.rank) as machine:
            yield machine
    else:
        yield Gpu(ordinal=device_of_rank())


def main() -> int:
    options = Options("probe", __doc__, list(CHECKS))
    begin = time.perf_counter()
    status = 0
    with device(options) as machine:
        machine_found = {"commit": commit, "cuda": core.cuda_availability(), "first_use_s": time.perf_counter() - begin}
        for name in options.checks:
            begin = time.perf_counter()
            try:
                found = CHECKS[name](machine, options.count)
            except Exception as error:  # the others may work; a rank that this one leaves waiting ends at the limit
                traceback.print_exc()
                found = {"right": False, "error": f"{type(error).__name__}: {error}"}
            seconds = WORLD.allreduce(time.perf_counter() - begin, MPI.MAX)
            status |= options.end({"check": name, "seconds": seconds, **found, "machine": machine_found})
    return status


if __name__ == "__main__":
    sys.exit(main())
