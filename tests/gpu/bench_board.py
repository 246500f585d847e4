"""Measures the device board on a GPU: P-Reduce of all ranks, end to end, beside copies of the same size.

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
from devices import Gpu, Simulated, wait, why_no_gpu
from mpi4py import MPI

from pycollectives.support.native import core

WORLD = MPI.COMM_WORLD
EVERYBODY = list(range(WORLD.size))
WARM_UP = 3


class Bench:
    """One rank: its arrays, and its part of a board."""

    def __init__(self, machine, count: int):
        self.executor, self.count, self.ticket = machine.executor, count, 0
        self.bytes = 4 * count
        control = core.testing.DeviceBoardControl() if WORLD.rank == 0 else None
        handle = WORLD.bcast(control.handle if control else None)
        control = control or core.testing.DeviceBoardControl.open(handle)
        self.board = core.testing.DeviceBoard(
            control, self.executor, ranks=EVERYBODY, local=WORLD.rank, dtype="float32", op="AVG", count=count
        )
        WORLD.Barrier()
        self.board.attach()
        WORLD.Barrier()
        self.stream, self.event = self.executor.new_stream(), self.executor.new_event()
        self.values = machine.put(np.full(count, WORLD.rank + 1.0, np.float32))
        self.out = machine.put(np.zeros(count, np.float32))

    def synchronize(self) -> None:
        self.stream.record(self.event)
        wait(self.event.reached)

    def copy(self) -> None:
        self.stream.copy(self.out.address, self.values.address, self.bytes)
        self.synchronize()

    def reduce(self) -> None:
        self.ticket += 1
        while not self.board.contribute(self.values.address, self.stream, ticket=self.ticket):
            self.board.advance()
        while not self.board.fold(self.ticket, EVERYBODY, EVERYBODY, WORLD.size):
            self.board.advance()
        while self.board.result(self.ticket, self.out.address, self.stream) is None:
            self.board.fold(self.ticket, EVERYBODY, EVERYBODY, WORLD.size)
            self.board.advance()
        self.synchronize()
        wait(self.board.advance)

    def close(self) -> None:
        wait(self.board.close)
        self.values.free()
        self.out.free()
        self.board = self.stream = self.event = self.executor = None


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
    bench = Bench(machine, max(1, int(options.megabytes * 1e6 / 4)))
    copy, reduce = median(bench.copy, options.repetitions), median(bench.reduce, options.repetitions)
    machine.finish()
    average = np.float32(sum(EVERYBODY) / WORLD.size + 1)
    right = WORLD.allreduce(bool(np.allclose(bench.out.get(), average)), MPI.LAND)
    record = {
        "program": "bench_board", "where": "simulated driver" if options.simulated else "gpu", "ranks": WORLD.size,
        "bytes": bench.bytes, "p_reduce_s": reduce, "copy_s": copy, "right": right,
    }  # fmt: skip
    bench.close()
    machine.end()
    if WORLD.rank == 0:
        print(json.dumps(record), flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
