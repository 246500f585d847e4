"""Ranks die one after the other, and the others continue with queues: no update and no token is lost, or counted twice.

queues.py RANKS UPDATES APART STEPS SEED VICTIM...

Rank UPDATES % RANKS owns an update queue, and each rank a token queue for the next one.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

first, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S, MAX_IG = float(apart), 2
source = random.Random(f"{seed} {WORLD.rank}")
owner = int(first) % WORLD.size

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
WORLD.Barrier()  # a death in the constructor is an error
me, size = comm.rank, comm.size
left, right = (me - 1) % size, (me + 1) % size
values = np.zeros(100)

with comm:
    updates = comm.update_queue(values, owner=owner, max_ig=MAX_IG)
    tokens = [comm.token_queue(owner=rank, taker=(rank + 1) % size, tokens=1) for rank in range(size)]
    WORLD.Barrier()
    if me in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(me))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    received = {rank: [] for rank in range(size)}

    def note(all_updates):
        for update, iteration, sender in all_updates:
            assert (update == sender * 1000 + iteration).all(), (update, iteration, sender)
            received[sender].append(iteration)

    for step in range(steps):
        time.sleep(source.uniform(0, pause))
        tokens[me].enqueue(2)
        tokens[left].dequeue(2)
        if me != owner:
            updates.enqueue(values + me * 1000 + step // 2, step // 2)  # each iteration twice
        else:
            while any(len(received[rank]) < step for rank in comm.members if rank != me):
                time.sleep(1e-3)
                note(updates.dequeue(updates.size()))
        comm.mean(1.0) if step % 8 == 0 else None
    if me == owner:
        for rank in range(size):
            while rank != me and rank in comm.members and len(received[rank]) < steps:
                note(updates.dequeue(1, sender=rank))
        expected = [step // 2 for step in range(steps)]
        for rank, iterations in received.items():
            assert iterations == expected[: len(iterations)], (rank, iterations)
            assert rank == me or rank not in comm.members or len(iterations) == steps, (rank, iterations)
    comm.mean(1.0)
    if left in comm.members:
        assert tokens[left].size() == 1, tokens[left].size()
    comm.mean(1.0)
say("members:", *comm.members)
say("end")
