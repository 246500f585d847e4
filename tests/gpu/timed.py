"""What the programs that measure a device share: their options, the device, and medians over ranks."""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from devices import Gpu, Simulated, wait, why_no_gpu
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devices import Host

WORLD = MPI.COMM_WORLD
WARM_UP = 3


class Options:
    """Of the command line; and what a record of them begins with."""

    def __init__(self, program: str, doc: str, checks: Sequence[str] = ()):
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--megabytes", type=float, default=100.0, help="float32 values of each rank (default: 100)")
        parser.add_argument("--repetitions", type=int, default=20)
        parser.add_argument("--simulated", action="store_true", help="on the simulated driver")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also append the record to a file")
        if checks:
            parser.add_argument("check", nargs="+", choices=checks)
        given = parser.parse_args()
        self._path = given.json
        self.checks: list[str] = given.check if checks else []
        self.simulated, self.repetitions = given.simulated, given.repetitions
        self.count = max(1, int(given.megabytes * 1e6 / 4))
        if not self.simulated and why_no_gpu():
            print(f"no GPU: CUDA is off: {why_no_gpu()}", file=sys.stderr)
            sys.exit(1)
        self.begin = {
            "program": program, "where": "simulated driver" if self.simulated else "gpu", "ranks": WORLD.size,
            "bytes": 4 * self.count,
        }  # fmt: skip

    def machine(self) -> Host:
        """The device, the same for all ranks."""
        return Simulated(WORLD.rank) if self.simulated else Gpu(ordinal=0)

    def median(self, action: Callable[[], None], *, alone: bool = False) -> float:
        """Seconds until the last rank is through; `alone`: only rank 0 acts."""
        times = []
        for number in range(WARM_UP + self.repetitions):
            WORLD.Barrier()
            begin = time.perf_counter()
            if WORLD.rank == 0 or not alone:
                action()
            seconds = WORLD.allreduce(time.perf_counter() - begin, MPI.MAX)
            if number >= WARM_UP:
                times.append(seconds)
        return statistics.median(times)

    def end(self, found: dict[str, Any]) -> int:
        """Rank 0 prints the record. The status of the program: 1, if anybody's results were wrong."""
        right = WORLD.allreduce(bool(found["right"]), MPI.LAND)
        if WORLD.rank == 0:
            line = json.dumps({**self.begin, **found, "right": right})
            print(line, flush=True)
            if self._path:
                with self._path.open("a") as records:
                    records.write(line + "\n")
        return 0 if right else 1


class Pinned:
    """Memory of the host from which copies are fast."""

    def __init__(self, executor: Any, count: int):
        self._block = executor.allocate_staging(4 * count)
        self.address = self._block.address
        self.values = np.frombuffer((ctypes.c_char * (4 * count)).from_address(self.address), np.float32)

    def free(self) -> None:
        self.values = None
        self._block.free()
        self._block = None


class Worker:
    """A stream of this rank's, and how it waits for it."""

    def __init__(self, executor: Any):
        self.stream, self._event = executor.new_stream(), executor.new_event()

    def synchronize(self) -> None:
        self.stream.record(self._event)
        wait(self._event.reached)
