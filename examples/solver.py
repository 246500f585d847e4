"""How thick must a wall be so that a quarter of the particles pass? A search by simulation, not machine learning.

    mpirun -n 4 python examples/solver.py

With fewer cores than ranks, Open MPI needs `mpirun --oversubscribe`.

Particles fly into a wall. Their mean distance between two collisions is 1, and after a collision half of them turn
back. The share of particles that pass is 1 / (1 + thickness / 2), so the answer is 6; the program does not know that
formula. It simulates batches of particles on all ranks, and corrects the thickness after each batch by Robbins and
Monro's method: a little thicker if too many have passed, with smaller and smaller corrections.

A correction that arrives a round late is still valid, so no rank needs to wait for the slowest. A rank scales its
correction *before* it contributes it. The thickness is the sum of all contributions, and the same on all ranks,
whichever rounds the corrections were in.
"""

import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TARGET = 0.25
STAGES, STEPS = 4, 25
PARTICLES = 2000


def passed(thickness, rng):
    """Return the simulated share of particles that pass a wall."""
    positions, directions, through = np.zeros(PARTICLES), np.ones(PARTICLES), 0
    while positions.size:
        positions = positions + directions * rng.exponential(size=positions.size)
        through += np.count_nonzero(positions > thickness)
        positions = positions[(positions > 0) & (positions <= thickness)]
        directions = rng.choice([-1.0, 1.0], size=positions.size)
    return through / PARTICLES


def main():
    """Search in stages, and report the mean over ranks after each."""
    with pc.Communicator(MPI.COMM_WORLD, timeout=30.0) as comm:
        rng = np.random.default_rng([7, comm.rank])
        corrections = comm.partial_allreduce(count=1, dtype="float64")
        thickness = 3.0

        for stage in range(STAGES):
            MPI.COMM_WORLD.Barrier()  # safe: `corrections` is new or flushed, so no rank waits in it
            begin, share = time.perf_counter(), 0.0
            for step in range(STEPS):
                time.sleep(rng.exponential(0.008 if comm.rank == 0 else 0.002))  # stands for a slow machine
                share = passed(thickness, rng)
                gain = 100 / (10 + stage * STEPS + step)
                correction = np.array([gain * (share - TARGET) / comm.size])
                corrections.contribute(correction).wait()
                thickness += corrections.result[0]

            corrections.flush()  # before any call that waits for all ranks; its result belongs to the search
            thickness += corrections.result[0]
            share = comm.mean(share)
            seconds = comm.mean(time.perf_counter() - begin)
            if comm.rank == 0 and stage in (0, STAGES - 1):
                print(f"stage {stage}: thickness {thickness:.2f}, {share:.3f} pass in the last step, {seconds:.2f} s")

        thicknesses = MPI.COMM_WORLD.gather(thickness)
        if comm.rank == 0:
            print(f"{comm.size} ranks: thickness {thickness:.2f}, ranks differ by {np.ptp(thicknesses):.1e}")


if __name__ == "__main__":
    main()
