"""Ranks die one after the other, and the others continue with a parameter server: each push counts once.

servers.py RANKS SYNC SERVERS APART STEPS SEED VICTIM...: element i of the weights sums the pushes
of rank i % RANKS, which are 1, 2 and so on.
SERVERS: a number, node or all; with f at the end, a function updates the weights.
"""

import random
import time
from os import environ

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

sync, servers, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")
is_function = servers.endswith("f")
servers = servers.removesuffix("f")
serving = {"node": "node", "all": range(WORLD.size)}.get(servers) or int(servers)
update = (lambda w, g: np.subtract(w, g, out=w)) if is_function else pc.servers.SGD(1.0)
is_bsp = sync == "bsp"

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
count = comm.size * (3 if seed % 2 else 1 << 14)
mine = np.where(np.arange(count) % comm.size == comm.rank, 1.0, 0.0)
out = np.zeros(count)
WORLD.Barrier()  # a death in the constructor is an error


def check(counts, survivors):
    """Fail unless the weights include each push of a survivor once, and of a dead rank each in all elements or none."""
    counts = -counts.reshape(-1, comm.size)
    is_one_node = environ.get("PYC_RANKS_PER_NODE") == "all"
    lost_nodes = 0 if is_one_node and not is_function else len(victims)  # whose weights a copy replaces
    for rank in range(comm.size):
        of_rank = counts[:, rank]
        if rank not in ps.workers:
            assert (of_rank == 0).all(), counts[:3]
        elif rank not in survivors:  # its last push may be in one of several shards only, or in a part of it
            assert np.ptp(of_rank) <= (1e-9 if is_bsp and servers == "1" else (2 + lost_nodes) * steps), (rank, of_rank)
        elif not is_bsp:
            total = steps * (steps + 1) / 2
            assert (of_rank >= total).all(), (rank, of_rank, total)
            assert (of_rank <= total + lost_nodes * steps).all(), (rank, of_rank, total)
    if is_bsp:
        of_survivors = counts[:, [rank for rank in survivors if rank in ps.workers]]
        differ = np.ptp(of_survivors, axis=1) > 1e-9 + lost_nodes * steps if of_survivors.size else np.zeros(1)
        # In another shard an update may be the mean of more ranks.
        assert differ.sum() <= len(ps.servers) * len(victims), of_survivors


with comm:
    ps = comm.parameter_server(np.zeros(count), sync=sync, servers=serving, update=update)
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    for step in range(steps):
        time.sleep(source.uniform(0, pause))
        if comm.rank not in ps.workers:
            ps.pull(out)
        elif is_bsp or source.random() < 0.5:
            ps.push_pull((step + 1) * mine, out)
        else:
            request = ps.push((step + 1) * mine)
            if source.random() < 0.5:
                assert request.wait().clock == step + 1
            if source.random() < 0.5:
                ps.pull(out)
        assert ps.clock == (step + 1 if comm.rank in ps.workers else 0)
    ps.flush()
    comm.mean(1.0)
    ps.flush()
    comm.mean(1.0)
    survivors = comm.members
    ps.pull(out)
    check(out, survivors)
    assert {worker.rank for worker in ps.server_statistics().workers} <= {*survivors, *victims}
    comm.mean(1.0)
    with comm.parameter_server(np.zeros(5), sync="asp", servers="node", update=pc.servers.SGD(1.0)) as another:
        another.push(np.ones(5))
        another.flush()
        comm.mean(1.0)
        weights = np.zeros(5)
        another.pull(weights)
        assert (weights == -len(survivors)).all(), weights
        comm.mean(1.0)
say("members:", *survivors)
say("end")
