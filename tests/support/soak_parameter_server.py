"""A long run of parameter servers: `mpirun -n 8 python tests/support/soak_parameter_server.py --pushes 100000`.

Workers push at random times, leave and come back, in stretches: each with another synchronization, and with the weights
at one server, at several, or in the node's memory. Checked:

- each push that was not discarded is in the weights once: a worker adds 1 to its own row. Under synchronizations that
  make means of gradients, an update adds 1 to the sum of the weights;
- what is pulled is whole: of one moment within a shard;
- the server's counts are the workers';
- no growth of memory: the resident set after the first tenth and at the end.

Ends with one line, and status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from mpi4py import MPI
from soak import Growth

import pycollectives as pc
from pycollectives.parameter_server import sync as synchronizations

WORLD = MPI.COMM_WORLD
STRETCH = 100
"""Pushes of a worker, at most."""

COUNTS = (3, 2000)  # columns of the weights
EACH_IS_AN_UPDATE = ("asp", "ssp:2", "dssp:1:4", "elastic:10", "ringmaster:4")
MEANS = ("bsp", "rennala:3", "ringleader")
SERVERS = ("node", 1, 2)


def stretch(comm: pc.Communicator, number: int, seed: int) -> int:
    """Make a parameter server and push to it; return how many pushes all ranks have made."""
    names = (*EACH_IS_AN_UPDATE, *MEANS)
    name = names[number % len(names)]
    servers = SERVERS[number // len(names) % len(SERVERS)]
    w = np.zeros((comm.size, COUNTS[number % 2]))
    own = np.random.default_rng([seed, number, comm.rank])
    pushes = int(own.integers(STRETCH // 2, STRETCH))
    gradient = np.zeros_like(w)
    gradient[comm.rank] = -1
    sync = synchronizations.parse(name)
    with comm.parameter_server(w, sync=sync, update=pc.SGD(1.0), servers=servers, workers=range(comm.size)) as ps:
        for _ in range(pushes):
            draw = own.random()
            if draw < 0.03:
                time.sleep(own.exponential(1e-3))
            if draw < 0.02:
                ps.leave()
                time.sleep(own.exponential(1e-3))
            if 0.5 < draw < 0.6:
                ps.push(gradient)
            else:
                ps.push_pull(gradient, w)
                check(np.ptp(w, axis=1).max() == 0 or len(ps.servers) > 1, f"{name}, {servers}: torn: {w[:, ::50]}")
        ps.pull(w)  # behind the last push
        ps.leave()
        WORLD.Barrier()
        ps.pull(w)
        counted = ps.statistics()
        WORLD.Barrier()
    made = np.array(WORLD.allgather(pushes))
    mine = counted.workers[comm.rank]
    check([worker.pushes for worker in counted.workers] == made.tolist(), f"{name}, {servers}: {counted}, {made}")
    if name in EACH_IS_AN_UPDATE:
        effects = made - [worker.discarded for worker in counted.workers]
        check((w == effects[:, None]).all(), f"{name}, {servers}: {w[:, 0]}, expected {effects}")
        check(counted.version == effects.sum(), f"{name}, {servers}: version {counted.version}")
    else:
        check(np.allclose(w.sum(0), counted.version), f"{name}, {servers}: {w.sum(0)[:3]}, {counted.version} updates")
    check(mine.rank == comm.rank and sum(counted.staleness) == made.sum(), f"{name}, {servers}: {counted}")
    return int(made.sum())


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pushes", type=int, default=100_000, help="of all ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever came of it")
    parser.add_argument("--ranks-per-node", type=int, help="default: as it is")
    parser.add_argument("--max-growth-mib", type=float, default=16.0)
    options = parser.parse_args()
    begin = time.monotonic()
    pushes = stretches = 0
    growth = Growth()
    with pc.Communicator(WORLD, ranks_per_node=options.ranks_per_node, timeout=120.0) as comm:
        going = True
        while going:
            try:
                pushes += stretch(comm, stretches, options.seed)
            except BaseException as error:
                print(f"rank {comm.rank}, seed {options.seed}: {error!r}", file=sys.stderr, flush=True)
                WORLD.Abort(1)
            stretches += 1
            growth.note(pushes, options.pushes)
            going = WORLD.bcast(pushes < options.pushes and time.monotonic() - begin < options.seconds)
        what = f"{pushes} pushes in {stretches} stretches"
        return growth.verdict(options.max_growth_mib, what, begin, options.seed)


if __name__ == "__main__":
    sys.exit(main())
