"""Measures P-Reduce of all ranks on a GPU, end to end, beside copies of the same size.

    mpirun -n 4 python tests/gpu/bench_board.py --megabytes 100

Rank 0 prints one line of JSON. `--simulated` tries the program out on the simulated driver; its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from device_programs import OnDevice
from devices import Gpu, Simulated, wait, why_no_gpu
from mpi4py import MPI

import pycollectives as pc

WORLD = MPI.COMM_WORLD
WARM_UP = 3


class Bench:
    """One rank: its weights, which it averages with those of all others."""

    def __init__(self, machine, comm, count: int):
        self.machine, self.bytes = machine, 4 * count
        self.weights = OnDevice(machine, np.full(count, WORLD.rank + 1.0, np.float32))
        self.copied = machine.put(np.zeros(count, np.float32))
        self.groups = comm.partial_reduce(like=self.weights, groups=pc.StaticGroups(WORLD.size))
        self.step = 1  # in the odd ones a group is all of them
        self.event = machine.executor.new_event()

    def copy(self) -> None:
        self.weights.stream.copy(self.copied.address, self.weights.block.address, self.bytes)
        self.weights.stream.record(self.event)
        wait(self.event.reached)

    def reduce(self) -> None:
        self.groups.sync(self.weights, self.step)
        self.step += 2

    def close(self) -> None:
        self.groups.close()
        self.weights.free()
        self.copied.free()
        self.groups = self.machine = self.event = None


def median(action, repetitions: int) -> float:
    """Seconds until the last rank is through."""
    times = []
    for number in range(WARM_UP + repetitions):
        WORLD.Barrier()
        begin = time.perf_counter()
        action()
        seconds = WORLD.allreduce(time.perf_counter() - begin, MPI.MAX)
        if number >= WARM_UP:
            times.append(seconds)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0, help="float32 values of each rank (default: 100)")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver")
    options = parser.parse_args()
    if not options.simulated and why_no_gpu():
        print(f"no GPU: CUDA is off: {why_no_gpu()}", file=sys.stderr)
        return 1
    machine = Simulated(WORLD.rank) if options.simulated else Gpu(ordinal=0)
    if options.simulated:
        machine.driver.use()
    with pc.Communicator(WORLD, ranks_per_node="all") as comm:
        bench = Bench(machine, comm, max(1, int(options.megabytes * 1e6 / 4)))
        copy, reduce = median(bench.copy, options.repetitions), median(bench.reduce, options.repetitions)
        average = np.float32((WORLD.size + 1) / 2)
        right = WORLD.allreduce(bool(np.allclose(bench.weights.get(), average)), MPI.LAND)
        record = {
            "program": "bench_board", "where": "simulated driver" if options.simulated else "gpu", "ranks": WORLD.size,
            "bytes": bench.bytes, "p_reduce_s": reduce, "copy_s": copy, "right": right,
        }  # fmt: skip
        bench.close()
    if options.simulated:
        machine.driver.use_no_more()
    if WORLD.rank == 0:
        print(json.dumps(record), flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
