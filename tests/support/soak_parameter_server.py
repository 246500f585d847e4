"""A long run of parameter servers: `mpirun -n 8 python tests/support/soak_parameter_server.py --pushes 100000`.

Workers push at random times, reach time limits, leave and return, in stretches: each with another synchronization, and
with the weights on one server, on several, or in the node's memory. A gradient of a worker is `UNIT` in its own row, so
that all weights are integers, also under synchronizations that make means. Checked, to the last bit:

- consistency: weights pulled from one server have as many updates as their version;
- pulled weights have the worker's own gradients, as far as it knows that they are used, each once;
- at the end the weights hold each gradient that was pushed and not discarded once, and the server's counts are the
  workers'. Ringleader uses gradients again: only the sum of the weights is known there;
- no growth of memory or open files: after the first tenth and at the end.

Ends with one line, and status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import operator
import sys
import time
from dataclasses import astuple, dataclass

import numpy as np
from mpi4py import MPI
from soak import Growth

import pycollectives as pc
from pycollectives.servers import sync as synchronizations

WORLD = MPI.COMM_WORLD
UNIT = 840
"""All of 1 to 8 divide it: the workers that have a part in a mean."""

SYNCS = ("asp", "ssp:2", "elastic:10", "dssp:1:4", "bsp", "ringmaster:4", "rennala:3", "ringleader")
SERVERS = (1, "node", 2)
COLUMNS = (3, 2000, 10_000)
OVERWRITTEN = 10**9


@dataclass(frozen=True)
class Shares:
    """The least and the most that a used gradient adds to its row, and how many gradients may still be missing."""

    least: int = UNIT
    most: int = UNIT
    held_back: int = 0


SHARES = {"bsp": Shares(least=UNIT // 8), "rennala:3": Shares(UNIT // 3, UNIT // 3, held_back=2)}


@dataclass
class Totals:
    """Sums over all ranks, of one stretch or of all."""

    pushes: int = 0
    discarded: int = 0
    updates: int = 0
    returns: int = 0
    stalls: int = 0

    def __add__(self, more: Totals) -> Totals:
        return Totals(*map(operator.add, astuple(self), astuple(more)))


class Worker:
    """A rank in one stretch: its calls, and its knowledge of its gradients."""

    def __init__(self, ps: pc.ParameterServer, rank: int, w: np.ndarray, sync: str, seed: list[int]) -> None:
        self._ps, self._rank, self._w, self._sync = ps, rank, w, sync
        self._random = np.random.default_rng([*seed, rank])
        self._gradient = np.zeros_like(w)
        self._gradient[rank] = -UNIT
        self._learned: set[int] = set()  # pushes
        self.used = 0  # of those learned
        self.returns = self.stalls = 0

    @property
    def unknown(self) -> int:
        return self._ps.clock - len(self._learned)

    def go_on(self, pushes: int) -> None:
        while self._ps.clock < pushes:
            if self._random.random() < 0.03:
                time.sleep(self._random.exponential(1e-3))
            if self._random.random() < 0.02:
                self._leave()
            call = self._random.choice([self._push_pull, self._push_in_time, self._push], p=[0.8, 0.1, 0.1])
            call()
        self._pull()

    def _leave(self) -> None:
        self._ps.suspend()
        self.returns += 1
        time.sleep(self._random.exponential(1e-3))
        if self._random.random() < 0.5:
            self._ps.pull(self._w)  # the next gradient counts
            self._look(self._w)

    def _push_pull(self) -> None:
        self._ps.push_pull(self._gradient, self._w)
        self._learn()
        self._look(self._w)

    def _push_in_time(self) -> None:
        """Push with a time limit; after the call, the buffers belong to the caller again."""
        gradient, out = self._gradient.copy(), self._w.copy()
        try:
            self._ps.push_pull(gradient, out, timeout=self._random.choice([0, 1e-4, 1e-3, 1e-2]))
            self._learn()
            self._look(out)
        except pc.StallError:
            self.stalls += 1
        gradient[:] = out[:] = OVERWRITTEN

    def _push(self) -> None:
        request = self._ps.push(self._gradient)
        draw = self._random.random()
        if draw < 0.3:
            request.wait()
            self._learn()
        elif draw < 0.7:
            self._pull()

    def _pull(self) -> None:
        """Pull after the last push, in which this worker takes part."""
        self._ps.pull(self._w)
        self._learn()
        self._look(self._w)

    def _learn(self) -> None:
        """Record that the newest push has released this worker; some earlier pushes may stay unknown."""
        last = self._ps.last_push
        self._check(last is not None and last.clock == self._ps.clock, f"let go by {last}, not {self._ps.clock}")
        self.used += last.used and last.clock not in self._learned
        self._learned.add(last.clock)

    def _look(self, w: np.ndarray) -> None:
        """Check the weights that it has just received."""
        version = self._ps.version
        rows = w[:, 0]
        if len(self._ps.servers) <= 1:
            self._check((w == rows[:, None]).all(), f"torn: {w[:, ::50]}")
            self._check(is_total(rows.sum(), version, self._sync), f"{rows} after {version} updates")
        if self._sync != "ringleader":
            shares, own, most = SHARES.get(self._sync, Shares()), rows[self._rank], self.used + self.unknown
            fits = shares.least * (self.used - shares.held_back) <= own <= shares.most * most
            self._check(fits, f"{own} of rank {self._rank} by {self.used} to {most} gradients that are used")

    def _check(self, holds: bool, text: str) -> None:
        check(holds, f"{self._ps}, push {self._ps.clock}: {text}")


def is_total(total: float, updates: int, sync: str) -> bool:
    """Whether the total fits the updates; under Ringleader, means are of any number of gradients."""
    return np.isclose(total, UNIT * updates, rtol=1e-12) if sync == "ringleader" else total == UNIT * updates


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def stretch(comm: pc.Communicator, number: int, seed: int, longest: int) -> Totals:
    """Make a parameter server and push to it, each rank `longest` times at most."""
    sync, servers = SYNCS[number % len(SYNCS)], SERVERS[number % len(SERVERS)]
    w = np.zeros((comm.size, COLUMNS[number // len(SERVERS) % len(COLUMNS)]))
    with comm.parameter_server(
        w, sync=synchronizations.parse(sync), update=pc.servers.SGD(1.0), servers=servers, workers=range(comm.size)
    ) as ps:
        worker = Worker(ps, comm.rank, w, sync, [seed, number])
        worker.go_on(int(np.random.default_rng([seed, number, comm.rank]).integers(longest // 2, longest + 1)))
        ps.suspend()
        WORLD.Barrier()
        ps.pull(w)
        counted = ps.server_statistics()
        WORLD.Barrier()
        made = WORLD.allgather(ps.clock)
    what = f"{sync}, servers {servers}"
    check([each.pushes for each in counted.workers] == made, f"{what}: {counted}, pushes made: {made}")
    check(sum(counted.staleness) == sum(made), f"{what}: {counted}")
    used = np.array([each.pushes - each.discarded for each in counted.workers])
    check(worker.used <= used[comm.rank] <= worker.used + worker.unknown, f"{what}: {used}, {worker.used} are known")
    check_end(w, used, counted.version, sync, what)
    discarded = sum(made) - int(used.sum())
    returns, stalls = WORLD.allreduce(worker.returns), WORLD.allreduce(worker.stalls)
    return Totals(sum(made), discarded, counted.version, returns, stalls)


def check_end(w: np.ndarray, used: np.ndarray, updates: int, sync: str, what: str) -> None:
    """Check the weights after all workers have left; `used` gradients are used."""
    rows = w[:, 0]
    text = f"{what}: {rows} after {updates} updates by {used} gradients"
    check((w == rows[:, None]).all(), f"{text}: {w[:, ::50]}")
    check(is_total(rows.sum(), updates, sync), text)
    if sync == "rennala:3":
        held_back = used.sum() - 3 * updates
        check(0 <= held_back <= 2 and (UNIT // 3 * used - rows).sum() == UNIT // 3 * held_back, text)
    elif sync == "bsp":
        check((rows >= UNIT // 8 * used).all() and (rows <= UNIT * used).all(), text)
    elif sync != "ringleader":
        check((rows == UNIT * used).all() and updates == used.sum(), text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pushes", type=int, default=100_000, help="of all ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever came of it")
    parser.add_argument("--stretch", type=int, default=350, help="pushes of a rank to one server, at most")
    parser.add_argument("--ranks-per-node", type=int, help="default: as it is")
    parser.add_argument("--max-growth-mib", type=float, default=16.0)
    options = parser.parse_args()
    if WORLD.size > 8:
        parser.error("expected at most 8 ranks: means of more gradients are not integers")
    begin = time.monotonic()
    totals, stretches, growth = Totals(), 0, Growth()
    with pc.Communicator(WORLD, ranks_per_node=options.ranks_per_node, timeout=120.0) as comm:
        going = True
        while going:
            try:
                totals += stretch(comm, stretches, options.seed, options.stretch)
            except BaseException as error:
                print(f"rank {comm.rank}, seed {options.seed}: {error!r}", file=sys.stderr, flush=True)
                WORLD.Abort(1)
            stretches += 1
            growth.note(totals.pushes, options.pushes)
            going = WORLD.bcast(totals.pushes < options.pushes and time.monotonic() - begin < options.seconds)
        what = (
            f"{totals.pushes} pushes ({totals.discarded} discarded) in {stretches} stretches, "
            f"{totals.updates} updates, {totals.returns} returns, {totals.stalls} time limits"
        )
        return growth.verdict(options.max_growth_mib, what, begin, options.seed)


if __name__ == "__main__":
    sys.exit(main())
