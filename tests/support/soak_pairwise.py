"""A long run of averages in pairs: `mpirun -n 8 python tests/support/soak_pairwise.py --exchanges 1000000`.

Several models of different lengths are averaged continuously, one of them with momentum, while threads of every rank
apply random integers. After each stretch the models are made equal. Checked:

- conservation: they are the mean of all applied integers;
- agreement: they are the same bits on all ranks;
- no growth of memory: the resident set after the first tenth and at the end.

Ends with one line, and status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

import numpy as np
from mpi4py import MPI
from soak import Growth

import pycollectives as pc

WORLD = MPI.COMM_WORLD
STRETCH = 2.0
"""Seconds between two `equalize`."""

MODELS = [
    {"count": 16, "topology": "ring"},
    {"count": 1000, "topology": "bipartite-exponential"},
    {"count": 30_000, "topology": "complete"},  # several segments
    {"count": 1000, "topology": "ring", "acceleration": "a2cid2"},
]


class Worker:
    """One model of one rank, and the thread that applies to it."""

    def __init__(self, comm: pc.Communicator, index: int, seed: int) -> None:
        options = dict(MODELS[index])
        self.applied = np.zeros(options.pop("count"))
        self.model = comm.pairwise_averaging(self.applied, rate=1e5, seed=seed + index, **options)
        self.random = np.random.default_rng([seed, index, comm.rank])
        self.error: BaseException | None = None

    def stretch(self, end: float) -> None:
        """Apply until the time `end`; an error is kept for the main thread."""
        try:
            while time.monotonic() < end:
                delta = self.random.integers(-8, 9, self.applied.size).astype(float)
                self.applied += delta
                self.model.apply(delta)
                time.sleep(self.random.exponential(2e-3))
        except BaseException as error:
            self.error = error

    def verify(self) -> int:
        """Make the models equal, and compare them with the applied integers; return this rank's exchanges so far."""
        self.model.equalize()
        model = self.model.read()
        mean = WORLD.allreduce(self.applied) / WORLD.size
        np.testing.assert_allclose(model, mean, rtol=0, atol=1e-6)
        assert WORLD.bcast(model.tobytes()) == model.tobytes(), "models differ after equalize"
        return self.model.statistics().exchanges


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1_000_000, help="of all ranks and models together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so long, whatever the exchanges"
    )
    parser.add_argument("--ranks-per-node", type=int, help="default: as it is")
    parser.add_argument("--max-growth-mib", type=float, default=16.0)
    options = parser.parse_args()
    begin = time.monotonic()
    exchanges = stretches = 0
    growth = Growth()
    with pc.Communicator(WORLD, ranks_per_node=options.ranks_per_node, timeout=120.0) as comm:
        workers = [Worker(comm, index, options.seed) for index in range(len(MODELS))]
        going = True
        while going:
            end = time.monotonic() + STRETCH
            threads = [threading.Thread(target=w.stretch, args=(end,), daemon=True) for w in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            errors = [worker.error for worker in workers if worker.error is not None]
            if errors:
                print(f"rank {comm.rank}, seed {options.seed}: {errors}", file=sys.stderr, flush=True)
                WORLD.Abort(1)
            exchanges = WORLD.allreduce(sum(worker.verify() for worker in workers))
            stretches += 1
            growth.note(exchanges, options.exchanges)
            going = WORLD.bcast(exchanges < options.exchanges and time.monotonic() - begin < options.seconds)
        what = f"{len(MODELS)} models, {exchanges} exchanges, {stretches} times equal"
        status = growth.verdict(options.max_growth_mib, what, begin, options.seed)
        for worker in workers:
            worker.model.leave()
    return status


if __name__ == "__main__":
    sys.exit(main())
