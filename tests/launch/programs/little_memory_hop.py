"""A rank cannot have memory for Hop, later it can; every rank says what it is told.

little_memory_hop.py RANKS: each is a node of its own, and keeps copies of what it sends.
"""

import contextlib
import resource
from pathlib import Path

import numpy as np
from common import WORLD, say

import pycollectives as pc

MIB = 1 << 20
COUNT = 40 * MIB // 8  # too much for memory that the C library keeps
soft, hard = resource.getrlimit(resource.RLIMIT_AS)


@contextlib.contextmanager
def no_more_than(mib):
    """Of memory, besides what this process has."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + mib * MIB, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


with pc.Communicator(WORLD, ranks_per_node=1, timeout=20) as comm:
    w = np.full(COUNT, float(comm.rank))
    try:  # a model of 40 MiB, a queue of 320, and copies of 160
        with no_more_than(440) if comm.rank == 1 else contextlib.nullcontext():
            comm.hop(w, topology="complete", max_ig=3, name="large")
    except RuntimeError as error:
        say(f"{error}")
    with comm.hop(w, topology="complete", max_ig=1) as hop:
        for _ in hop.iterations(1):
            hop.step(np.zeros(COUNT))
        say(f"mean {hop.parameters[-1]}")

    queue = comm.update_queue(w, owner=1, max_ig=1)
    if comm.rank != 1:
        queue.enqueue(w, iteration=0)
    else:
        while queue.size() < 2:
            comm.advance()
        try:  # one copy of two at most
            with no_more_than(20):
                queue.dequeue(2, iteration=0)
        except MemoryError:
            say(f"out of memory, {queue.size()} updates are there")
        say(f"then {[(u.sender, float(u.update[-1])) for u in queue.dequeue(2, iteration=0)]}")
