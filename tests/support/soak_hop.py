"""A long run of Hop: `mpirun -n 8 python tests/support/soak_hop.py --iterations 100000`.

Ranks sleep at random, and go through stretches of iterations in one mode after another. In half of the stretches some
ranks make fewer iterations than others, and leave. Checked:

- gaps: PYC_CHECK=1 compares them with Table 1 whenever a rank begins an iteration;
- what is averaged: updates of iterations that the mode allows, none twice;
- values: each stays between the least and the most of the models, which differ at first, plus what was added: by the
  iterations of a rank, or under staleness by those of all ranks, since a rank averages updates of later iterations than
  its own, and then adds its own once more;
- no growth of memory: the resident set after the first tenth and at the end.

Ends with one line, and status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ["PYC_CHECK"] = "1"

import numpy as np
from mpi4py import MPI
from soak import Growth

import pycollectives as pc
from pycollectives.hop import modes

WORLD = MPI.COMM_WORLD
STRETCH = 500
"""Iterations."""

COUNTS = (8, 5000)  # of elements: a message that goes in its head, and one that does not
MODES = ("standard", "backup:1", "staleness:3", "notify-ack", "hybrid:1:2", "backup:1+skip:4", "staleness:5+skip:10")
GRAPHS = ("ring", "ring-based", "complete")
MAX_IG = 4
ROUNDING = 1e-9


def stretch(comm: pc.Communicator, number: int, seed: int) -> int:
    """Make a Hop and its iterations; return the number of this rank's iterations."""
    draw = np.random.default_rng([seed, number])  # the same on all ranks
    mode, skip = modes.parse(MODES[number % len(MODES)])
    count, graph = COUNTS[number % 2], GRAPHS[int(draw.integers(len(GRAPHS)))]
    lengths = draw.integers(STRETCH // 2, STRETCH, comm.size) if draw.random() < 0.5 else [STRETCH] * comm.size
    own = np.random.default_rng([seed, number, comm.rank])
    delta = np.full(count, 1.0)
    with comm.hop(np.full(count, float(comm.rank)), topology=graph, mode=mode, skip=skip, max_ig=MAX_IG) as hop:
        seen: set[tuple[int, int]] = set()
        for k in hop.iterations(int(lengths[comm.rank])):
            if own.random() < 0.05:
                time.sleep(own.exponential(1e-3))
            hop.step(delta)
            for sender, iteration in hop.received:
                oldest = k if mode.staleness is None else k - mode.staleness
                if iteration < oldest or (mode.staleness is None and iteration > k) or (sender, iteration) in seen:
                    raise AssertionError(f"{mode}, iteration {k}: averaged the update {iteration} of rank {sender}")
                seen.add((sender, iteration))
            value = float(hop.parameters[0])
            least, most = least_after(k, mode, skip), most_after(k, mode, comm.size)
            if not (least <= value <= most) or np.ptp(hop.parameters) != 0:
                raise AssertionError(f"{mode}, iteration {k}: parameters {hop.parameters}")
        return int(lengths[comm.rank])


def least_after(k: int, mode: modes.Mode, skip: pc.hop.Skip | None) -> float:
    """Return the least value after iteration `k`, if each iteration adds 1 to models of at least 0."""
    return (k + 1) * (1 - ROUNDING) if skip is None and mode.staleness is None else 0


def most_after(k: int, mode: modes.Mode, size: int) -> float:
    """Return the largest value, with models of at most `size` - 1."""
    iterations = k + 1 if mode.staleness is None else size * (k + 1 + size * MAX_IG)
    return (size - 1 + iterations) * (1 + ROUNDING)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100_000, help="of a rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever came of it")
    parser.add_argument("--ranks-per-node", type=int, help="default: as it is")
    parser.add_argument("--max-growth-mib", type=float, default=16.0)
    options = parser.parse_args()
    begin = time.monotonic()
    iterations = stretches = 0
    growth = Growth()
    with pc.Communicator(WORLD, ranks_per_node=options.ranks_per_node, timeout=120.0) as comm:
        going = True
        while going:
            try:
                iterations += stretch(comm, stretches, options.seed)
            except BaseException as error:
                print(f"rank {comm.rank}, seed {options.seed}: {error!r}", file=sys.stderr, flush=True)
                WORLD.Abort(1)
            stretches += 1
            growth.note(iterations, options.iterations)
            going = WORLD.bcast(iterations < options.iterations and time.monotonic() - begin < options.seconds)
        what = f"{iterations} iterations in {stretches} stretches"
        return growth.verdict(options.max_growth_mib, what, begin, options.seed)


if __name__ == "__main__":
    sys.exit(main())
