"""What a partial allreduce takes: a few arrays for each rank, and more for one that falls behind, up to a limit."""

import mmap
import threading
from pathlib import Path

import numpy as np
import pytest

from pycollectives.testing import run_ranks

LIMIT = 30.0
COUNT = 1 << 16
ARRAY = 4 * COUNT
SHAPES = [(1, 1), (2, 1), (2, "all"), (4, 2), (5, "all"), (8, 1), (8, 3), (8, "all")]


def arrays_of(comm, rounds, **options):
    """Balanced rounds, whose results are read: what the collective takes then, in arrays of this rank."""
    ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), **options)
    x = np.ones(COUNT, np.float32)
    for _ in range(rounds):
        ar.contribute(x).wait(timeout=LIMIT)
        assert ar.result[0] == comm.size
    taken = ar.statistics().memory_bytes / ARRAY
    ar.close(timeout=LIMIT)
    return taken


@pytest.mark.parametrize(("ranks", "ranks_per_node"), SHAPES)
def test_balanced_rounds_take_six_arrays(ranks, ranks_per_node):
    taken = run_ranks(ranks, lambda comm: arrays_of(comm, 40, policy="full"), ranks_per_node=ranks_per_node)
    assert max(taken) < 6.1, taken
    assert min(taken) > 0.1


def shared_memory():
    """Bytes of what this process shares and has written, by address."""
    taken, address = {}, None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            address = line.split()[0] if "memfd:pycollectives" in line else None
        elif address and line.startswith("Rss:"):
            taken[address] = 1024 * int(line.split()[1])
    return taken


def test_it_is_what_the_process_takes():
    """Of a board alone: what messages need is the transport's too."""
    together = threading.Barrier(4)

    def program(comm):
        before = shared_memory() if comm.rank == 0 else {}
        together.wait(LIMIT)
        ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), policy="full")
        for _ in range(40):
            ar.contribute(np.ones(COUNT, np.float32)).wait(timeout=LIMIT)
        together.wait(LIMIT)
        after = shared_memory() if comm.rank == 0 else {}
        together.wait(LIMIT)
        said = ar.statistics().memory_bytes
        ar.close(timeout=LIMIT)
        return said, sum(taken for address, taken in after.items() if address not in before)

    results = run_ranks(4, program)
    said, taken = sum(said for said, _ in results), results[0][1]
    assert abs(said - taken) < ARRAY + 16 * mmap.PAGESIZE, (said, taken)


@pytest.mark.parametrize("missed", ["sum", "latest"])
@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
@pytest.mark.parametrize("history", [1, 8])
def test_a_rank_that_falls_behind_takes_more_up_to_a_limit(missed, ranks_per_node, history):
    """Rank 0 makes 60 rounds alone; the others are given all of them at once, of which nothing is lost."""
    rounds, alone = 60, threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), policy="solo", missed=missed, history=history)
        x = np.ones(COUNT, np.float32)
        if comm.rank == 0:
            taken = []
            for _ in range(rounds):
                ar.contribute(x).wait(timeout=LIMIT)
                taken.append(ar.statistics().memory_bytes / ARRAY)
            alone.set()
        else:
            assert alone.wait(LIMIT)
            taken = [0.0]
        ar.flush(timeout=LIMIT)
        if comm.rank > 0:
            assert ar.result[0] == (rounds if missed == "sum" else 0 or ar.result[0])
        most = ar.statistics().memory_bytes / ARRAY
        ar.close(timeout=LIMIT)
        return most, taken

    results = run_ranks(3, program, ranks_per_node=ranks_per_node)
    most = max(most for most, _ in results)
    if missed == "sum" and ranks_per_node != 1:
        assert most >= min(history, 8) / 3
    assert most < history + 24
    taken = results[0][1]
    assert taken[-1] == taken[len(taken) // 2]  # it does not grow for ever


def test_a_rank_that_has_left_is_given_nothing():
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), policy="full")
        x = np.ones(COUNT, np.float32)
        ar.contribute(x)  # its result is not asked for
        if comm.rank == 2:
            ar.leave()
            return 0.0
        for _ in range(40):
            ar.contribute(x).wait(timeout=LIMIT)
        taken = ar.statistics().memory_bytes / ARRAY
        ar.close(timeout=LIMIT)
        return taken

    for ranks_per_node in (1, "all"):
        assert max(run_ranks(3, program, ranks_per_node=ranks_per_node)) < 8
