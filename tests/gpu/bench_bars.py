"""Measures collectives of arrays on a GPU, and in the same run what the GPU and its link to the host can do.

    mpirun -n 4 python tests/gpu/bench_bars.py --megabytes 100

Rank 0 prints one line of JSON, from which record.py makes ratios. Times are until the last rank has its result on the
device. `--simulated` tries the program out on the simulated driver; its times mean nothing.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from device_programs import OnDevice
from devices import wait
from mpi4py import MPI
from timed import WORLD, Options, Pinned, Worker

import pycollectives as pc

AVERAGE = (WORLD.size + 1) / 2
"""Of rank + 1."""


class Copies(Worker):
    """Copies on the device, and between it and pinned memory of the host."""

    def __init__(self, machine, count: int):
        super().__init__(machine.executor)
        self.values = machine.put(np.full(count, WORLD.rank + 1.0, np.float32))
        self.other = machine.put(np.zeros(count, np.float32))
        self.host = Pinned(machine.executor, count)
        self.count = count

    def _copy(self, to: int, source: int) -> None:
        self.stream.copy(to, source, 4 * self.count)
        self.synchronize()

    def on_device(self) -> None:
        self._copy(self.other.address, self.values.address)

    def to_host(self) -> None:
        self._copy(self.host.address, self.values.address)

    def to_device(self) -> None:
        self._copy(self.other.address, self.host.address)

    def staged(self) -> None:
        """An average as a program with mpi4py makes it: copy, MPI_Allreduce on the host, copy, and divide."""
        self.to_host()
        WORLD.Allreduce(MPI.IN_PLACE, self.host.values)
        self.stream.copy(self.other.address, self.host.address, 4 * self.count)
        here = [self.other.address]
        self.stream.weighted_sum("float32", here, here, [1 / WORLD.size], self.count)
        self.synchronize()

    def close(self) -> bool:
        """Whether the averages were right."""
        right = np.allclose(self.other.get(), AVERAGE)
        for memory in (self.values, self.other, self.host):
            memory.free()
        self.stream = self._event = None
        return right


class Arrays:
    """What a collective is given, and where its results go."""

    def __init__(self, machine, count: int):
        self.x = OnDevice(machine, np.full(count, WORLD.rank + 1.0, np.float32))
        self.out = OnDevice(machine, np.zeros(count, np.float32), self.x.handle)
        self._event = machine.executor.new_event()

    def synchronize(self) -> None:
        self.x.stream.record(self._event)
        wait(self._event.reached)

    def close(self, result: OnDevice) -> bool:
        """Whether the averages were right."""
        right = np.allclose(result.get(), AVERAGE)
        self.x.free()
        self.out.free()
        self._event = None
        return right


def ceilings(options: Options, copies: Copies) -> dict[str, float]:
    """Seconds; of one rank alone, and of all ranks at once."""
    return {
        f"{name}{'_alone' if alone else ''}_s": options.median(getattr(copies, name), alone=alone)
        for name in ("on_device", "to_host", "to_device")
        for alone in (True, False)
    }


def allreduce(options: Options, machine) -> tuple[float, bool]:
    """Seconds of `Full()`, which all ranks call at once, and whether results were right."""
    arrays = Arrays(machine, options.count)
    with (
        pc.Communicator(WORLD, ranks_per_node="all") as comm,
        comm.partial_allreduce(arrays.x, op=pc.AVG, policy=pc.Full(), history=1) as collective,
    ):

        def action():
            collective.allreduce(arrays.x, arrays.out)
            arrays.synchronize()

        seconds = options.median(action)
    return seconds, arrays.close(arrays.out)


def p_reduce(options: Options, machine, *, staged: bool) -> tuple[float, bool]:
    """Seconds of a P-Reduce of all ranks, in place, and whether results were right.

    On one node, or, `staged` through the host, with every rank on a node of its own.
    """
    arrays = Arrays(machine, options.count)
    groups = pc.groups.RandomGroups(WORLD.size, seed=1) if staged else pc.groups.StaticGroups(WORLD.size)
    with (
        pc.Communicator(WORLD, ranks_per_node=1 if staged else "all") as comm,
        comm.partial_reduce(arrays.x, groups=groups, op=pc.AVG) as collective,
    ):
        steps = itertools.count(1, 2)  # in the odd ones the ranks of a node are a static group

        def action():
            collective.average(arrays.x, next(steps))

        seconds = options.median(action)
    return seconds, arrays.close(arrays.x)


def main() -> int:
    options = Options("bench_bars", __doc__)
    machine = options.machine()
    with contextlib.ExitStack() as stack:
        if options.simulated:
            machine.driver.use()
            stack.callback(machine.driver.use_no_more)
        copies = Copies(machine, options.count)
        found = ceilings(options, copies)
        found["staged_s"] = options.median(copies.staged)
        right = [copies.close()]
        collectives = {"allreduce_s": allreduce}
        if WORLD.size > 1:  # of which a group is
            collectives["p_reduce_s"] = functools.partial(p_reduce, staged=False)
            collectives["staged_p_reduce_s"] = functools.partial(p_reduce, staged=True)
        for name, measure in collectives.items():
            found[name], is_right = measure(options, machine)
            right.append(is_right)
    gc.collect()
    machine.end()
    return options.end({**found, "right": all(right)})


if __name__ == "__main__":
    sys.exit(main())
