"""What queues take: (1 + max_ig) |N_in| updates (section 4.2), made at creation; and little besides."""

import mmap
import threading
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import topology
from pycollectives.testing import run_ranks

LIMIT = 30.0
GRAPHS = [
    topology.ring(6),
    topology.ring_based(8),
    topology.exponential(8),
    topology.star(5),
    topology.complete(5),
    topology.two_level([0, 0, 0, 1, 1, 2]),
    pc.topology.Topology(5, [(rank, (rank + 1) % 5) for rank in range(5)]),
]


def shared_mappings():
    """Of this process: bytes by address and file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:pycollectives" in line]
    ends = {(line[0], line[4]): [int(end, 16) for end in line[0].split("-")] for line in lines}
    return {key: end - begin for key, (begin, end) in ends.items()}


def mapped_by_making(graph, count, max_ig, ranks_per_node):
    """Make a Hop: what each rank says of its memory, and what this process has mapped for all of them."""
    together = threading.Barrier(graph.size)

    def program(comm):
        together.wait(LIMIT)
        before = shared_mappings() if comm.rank == 0 else {}
        together.wait(LIMIT)
        hop = comm.hop(np.zeros(count, np.float32), topology=graph, max_ig=max_ig)
        together.wait(LIMIT)
        after = shared_mappings() if comm.rank == 0 else {}
        together.wait(LIMIT)
        return hop.statistics().memory_bytes, sum(length for key, length in after.items() if key not in before)

    results = run_ranks(graph.size, program, ranks_per_node=ranks_per_node)
    return [said for said, _ in results], results[0][1]


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("max_ig", [1, 5, 16])
@pytest.mark.parametrize("count", [1000, 16_384])
def test_as_the_paper_bounds_it(graph, max_ig, count):
    """Copies are kept for other nodes alone. Without them, memory is what the nodes of the ranks have mapped."""
    update = 4 * count
    for ranks_per_node in (1, 2, "all"):
        said, mapped = mapped_by_making(graph, count, max_ig, ranks_per_node)
        copies = 0
        for rank, memory in enumerate(said):
            degree = len(graph.in_neighbors(rank))
            node = 0 if ranks_per_node == "all" else rank // ranks_per_node
            others = [j for j in graph.out_neighbors(rank) if ranks_per_node != "all" and j // ranks_per_node != node]
            kept = (1 + max_ig) * update if others else 0
            bound = (1 + max_ig) * degree * update
            overhead = 72 * (1 + max_ig) * degree + 128 * degree + 12 * 1024
            assert bound <= memory - kept <= bound + overhead, (ranks_per_node, rank)
            copies += kept
        if ranks_per_node != 1:  # else memory is no other process's, and has no name
            nodes = 1 if ranks_per_node == "all" else -(-graph.size // ranks_per_node)
            assert 0 < mapped - (sum(said) - copies) <= 2 * nodes * mmap.PAGESIZE  # what services share
