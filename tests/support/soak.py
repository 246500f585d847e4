"""A long run of random arrivals: `mpirun -n 4 python tests/support/soak.py --rounds 100000 --seed 1 [--seconds N]`.

Several collectives with different policies on one communicator, driven by several threads of every rank, with random
delays, unfinished calls and flushes. Checked during the run:

- agreement: a hash of (contributors, initiator, result) of every round that a rank is given alone, compared between
  ranks at the end of each stretch;
- exactness: a contributor's element holds a sum of its contributions, another's holds none;
- conservation: under missed="sum" every rank's running total after a flush is the sum of everything contributed;
- stability: results kept for a while have not changed;
- no growth of memory and open files: after the first tenth and at the end.

Ends with one line, and status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycollectives as pc

WORLD = MPI.COMM_WORLD
LIMIT = 120.0
STRETCH = 500
"""Rounds, about, between two flushes."""


def policies(size: int) -> list[tuple[pc.policies.Policy, int | None]]:
    """Return policies, each with a `max_staleness`."""
    half = (size + 1) // 2
    return [
        (pc.Solo(), None),
        (pc.Majority(1), None),
        (pc.Quorum(half), None),
        (pc.Quorum(half, grace=1e-4), None),
        (pc.policies.AnyOf(half, 2), 3),
        (pc.policies.AllOf(half, 3), None),
        (pc.Solo(), 2),
        (pc.Full(), None),
    ]


class Worker:
    """One collective of one rank, and the thread that drives it.

    A contribution has this rank's next number, 1, 2, 3..., in its own element, its square in another, so that a sum of
    contributions that are not each counted once is found, and ones for a checksum in the rest.
    """

    def __init__(self, comm: pc.Communicator, index: int, seed: int) -> None:
        kinds = policies(comm.size)
        policy, max_staleness = kinds[index % len(kinds)]
        self.name = f"{index}: {policy!r}"
        self.rank, self.size = comm.rank, comm.size
        self.width = 2 * comm.size
        self.count = self.width * (1 if index % 2 == 0 else 300)  # inline, and with payloads of their own
        self.ar = comm.partial_allreduce(
            count=self.count, dtype="int64", policy=policy, max_staleness=max_staleness, missed="sum", history=4
        )
        self.random = random.Random(f"{seed} {index} {comm.rank}")
        self.contributed = np.zeros(self.width, np.int64)
        self.total = np.zeros(self.width, np.int64)
        self.number = 0
        self.rounds_alone: dict[int, str] = {}
        self.given = 0
        self.error: BaseException | None = None

    def stretch(self, rounds: int, stop: float) -> None:
        """Make about this number of rounds, then flush; an error is kept for the main thread."""
        try:
            end = self.ar.rounds + rounds
            while self.ar.rounds < end and time.monotonic() < stop:
                self._call()
            self._account(self.ar.flush(timeout=LIMIT))
        except BaseException as error:
            self.error = error

    def _call(self) -> None:
        draw = self.random.random()
        if draw < 0.02:
            time.sleep(self.random.expovariate(1 / 2e-3))
        handle = self._contribute()
        if handle.late:
            self._account(handle.wait(timeout=LIMIT))
        elif draw > 0.9:  # a second call before the wait for the first
            second = self._contribute()
            for one in (second, handle):  # the newest receives the rounds of both
                self._account(one.wait(timeout=LIMIT))
        else:
            if draw > 0.8:
                while not handle.test():
                    time.sleep(0)
            self._account(handle.wait(timeout=LIMIT))

    def _contribute(self) -> pc.Request:
        self.number += 1
        x = np.zeros(self.width, np.int64)
        x[2 * self.rank : 2 * self.rank + 2] = self.number, self.number**2
        self.contributed += x
        payload = np.tile(x, self.count // self.width)
        handle = self.ar.contribute(payload)
        payload[:] = -1
        return handle

    def _account(self, info: pc.RoundInfo) -> None:
        if info.round < self.given:
            return
        result = self.ar.result
        tiles = result.reshape(-1, self.width)
        assert (tiles == tiles[0]).all(), f"{self.name}: parts of a result differ in {info}"
        self.total += tiles[0]
        if info.missed == 0:
            numbers = tiles[0, ::2]
            named = tuple(int(rank) for rank in np.flatnonzero(numbers))
            assert named == info.contributors, f"{self.name}: the result has {named}: {info}"
            text = f"{info.contributors} {info.initiator} {info.active} ".encode()
            self.rounds_alone[info.round] = hashlib.blake2b(text + result.tobytes(), digest_size=8).hexdigest()
        self.given += info.missed + 1

    def verify(self) -> tuple[int, int]:
        """Compare with the other ranks, after a flush; return the rounds so far, and how many were compared now."""
        everything = WORLD.allreduce(self.contributed)
        assert (self.total == everything).all(), f"{self.name}: total {self.total}, contributed {everything}"
        compared: dict[int, str] = {}
        for other in WORLD.allgather(self.rounds_alone):
            for number, digest in other.items():
                assert compared.setdefault(number, digest) == digest, f"{self.name}: round {number} differs"
        self.rounds_alone.clear()
        return self.given, len(compared)


@dataclass(frozen=True)
class Memory:
    """The memory of this process, and the memory in the machine's /dev/shm."""

    resident_mib: float
    files: int
    shared_mib: float

    @classmethod
    def now(cls) -> Memory:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        shm = os.statvfs("/dev/shm")
        used = (shm.f_blocks - shm.f_bfree) * shm.f_frsize
        return cls(resident / 2**20, len(os.listdir("/proc/self/fd")), used / 2**20)


class Growth:
    """The growth of the ranks' memory from the first tenth of a run to its end, and the number of their open files."""

    MOST_FILES = 16

    def __init__(self) -> None:
        self._tenths: list[Memory] = []

    def note(self, done: int, of: int) -> None:
        """Record the memory after each tenth of the run."""
        tenths = min(10 * done // of, 10)
        if tenths > len(self._tenths):
            self._tenths += [Memory.now()] * (tenths - len(self._tenths))

    def verdict(self, limit_mib: float, what: str, begin: float, seed: int) -> int:
        """Print the records and the last line of a soak on rank 0; collective. Return 1 if growth exceeds the limit."""
        last = Memory.now()
        seen = [*self._tenths, last]
        mib, files = last.resident_mib - seen[0].resident_mib, last.files - seen[0].files
        worst, most_files = WORLD.allreduce(mib, op=MPI.MAX), WORLD.allreduce(files, op=MPI.MAX)
        grown = worst > limit_mib or most_files > self.MOST_FILES
        of_ranks = WORLD.gather([memory.resident_mib for memory in seen])
        if WORLD.rank == 0:
            for rank, each in enumerate(of_ranks):
                print(f"soak: MiB of rank {rank} by tenths: {' '.join(f'{one:.1f}' for one in each)}")
            print(f"soak: MiB in /dev/shm by tenths: {' '.join(f'{memory.shared_mib:.1f}' for memory in seen)}")
            print(
                f"soak: {'MEMORY GROWS' if grown else 'passed'}: {WORLD.size} ranks, {what}, "
                f"{time.monotonic() - begin:.1f} s, growth {worst:.1f} MiB, {most_files} files, seed {seed}",
                flush=True,
            )
        return int(grown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100_000, help="of all collectives together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever the rounds")
    parser.add_argument("--collectives", type=int, default=8, help="each driven by a thread of its own")
    parser.add_argument("--max-growth-mib", type=float, default=16.0)
    options = parser.parse_args()
    begin = time.monotonic()
    rounds = compared = stretches = 0
    growth = Growth()
    with pc.Communicator(WORLD, timeout=LIMIT) as comm:
        workers = [Worker(comm, index, options.seed) for index in range(options.collectives)]
        going = True
        while going:
            stop = begin + options.seconds
            threads = [threading.Thread(target=w.stretch, args=(STRETCH, stop), daemon=True) for w in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            errors = [(w.name, w.error) for w in workers if w.error is not None]
            if errors:
                where = f"rank {comm.rank}, seed {options.seed}, after {rounds} rounds"
                print(f"{where}: {errors}", file=sys.stderr, flush=True)
                WORLD.Abort(1)
            seen = [worker.verify() for worker in workers]
            rounds = sum(given for given, _ in seen)
            compared += sum(number for _, number in seen)
            stretches += 1
            growth.note(rounds, options.rounds)
            going = WORLD.bcast(rounds < options.rounds and time.monotonic() < stop)
        contributions = WORLD.allreduce(sum(worker.number for worker in workers))
        what = f"{options.collectives} collectives, {rounds} rounds ({compared} compared), "
        what += f"{contributions} contributions, {stretches} flushes"
        return growth.verdict(options.max_growth_mib, what, begin, options.seed)


if __name__ == "__main__":
    sys.exit(main())
