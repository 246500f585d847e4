"""Measures the device board on a GPU: a P-Reduce of all ranks, end to end, without Python's and the service's part.

    mpirun -n 4 python tests/gpu/bench_board.py --megabytes 100

Rank 0 prints one line of JSON. `--simulated` tries the program out on the simulated driver; its times mean nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from devices import wait
from timed import WORLD, Options, Worker

from pycollectives.support.native import core

EVERYBODY = list(range(WORLD.size))


class Bench(Worker):
    """One rank: its arrays, and its part of a board."""

    def __init__(self, machine, count: int):
        super().__init__(machine.executor)
        self.ticket = 0
        control = core.testing.DeviceBoardControl() if WORLD.rank == 0 else None
        handle = WORLD.bcast(control.handle if control else None)
        control = control or core.testing.DeviceBoardControl.open(handle)
        self.board = core.testing.DeviceBoard(
            control, machine.executor, ranks=EVERYBODY, local=WORLD.rank, dtype="float32", op="AVG", count=count
        )
        WORLD.Barrier()
        self.board.attach()
        WORLD.Barrier()
        self.values = machine.put(np.full(count, WORLD.rank + 1.0, np.float32))
        self.out = machine.put(np.zeros(count, np.float32))

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
        self.board = self.stream = self._event = None


def main() -> int:
    options = Options("bench_board", __doc__)
    machine = options.machine()
    bench = Bench(machine, options.count)
    seconds = options.median(bench.reduce)
    machine.finish()
    average = np.float32(sum(EVERYBODY) / WORLD.size + 1)
    right = np.allclose(bench.out.get(), average)
    bench.close()
    machine.end()
    return options.end({"board_s": seconds, "right": right})


if __name__ == "__main__":
    sys.exit(main())
