"""What a partial allreduce takes: a few arrays for each rank, and more for one that falls behind, up to a limit."""

import mmap
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
COUNT = 1 << 16
ARRAY = 4 * COUNT
SHAPES = [(1, 1), (2, 1), (2, "all"), (4, 2), (5, "all"), (8, 1), (8, 3), (8, "all")]


def arrays_of(comm, together, dtype="float32", **options):
    """Balanced rounds, whose results are read: what the collective takes then, in arrays that it computes with."""
    ar = comm.partial_allreduce(count=COUNT, dtype=dtype, policy="full", **options)
    x = np.ones(COUNT, dtype)
    for _ in range(24):
        ar.contribute(x).wait(timeout=LIMIT)
        assert ar.result[0] == (1 if "op" in options else comm.size)
        together.wait(LIMIT)
    taken = ar.statistics().memory_bytes / ARRAY
    ar.close(timeout=LIMIT)
    return taken


def most_taken(limit, ranks, ranks_per_node, **options):
    """Of a rank, in the best of some runs: on a busy machine messages of earlier rounds may still be on their way."""
    taken = []
    while len(taken) < 20 and (not taken or min(taken) > limit):
        program = partial(arrays_of, together=threading.Barrier(ranks), **options)
        each = run_ranks(ranks, program, ranks_per_node=ranks_per_node)
        assert min(each) > 0.1, each
        taken.append(max(each))
    return min(taken)


@pytest.mark.parametrize(("ranks", "ranks_per_node"), SHAPES)
def test_balanced_rounds_take_six_arrays(ranks, ranks_per_node):
    assert most_taken(6.1, ranks, ranks_per_node) < 6.1


@pytest.mark.parametrize(("ranks", "ranks_per_node"), SHAPES)
@pytest.mark.parametrize("options", [{"op": pc.AVG}, {"dtype": "float16"}], ids=str)
def test_what_has_another_form_takes_two_more(options, ranks, ranks_per_node):
    assert most_taken(8.1, ranks, ranks_per_node, **options) < 8.1


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


def behind(history, ranks_per_node):
    """Rank 0 makes 60 rounds alone, of which the others are given all at once: what is taken before and after."""
    rounds, alone = 60, threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), policy="solo", missed="sum", history=history)
        x = np.ones(COUNT, np.float32)
        taken = []
        for _ in range(rounds if comm.rank == 0 else 0):
            ar.contribute(x).wait(timeout=LIMIT)
            taken.append(ar.statistics().memory_bytes / ARRAY)
        if comm.rank == 0:
            alone.set()
        assert alone.wait(LIMIT)
        ar.flush(timeout=LIMIT)
        assert comm.rank == 0 or ar.result[0] == rounds
        most = ar.statistics().memory_bytes / ARRAY
        ar.close(timeout=LIMIT)
        return most, taken

    results = run_ranks(3, program, ranks_per_node=ranks_per_node)
    return max(most for most, _ in results), results[0][1]


@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
def test_a_rank_that_falls_behind_takes_more_up_to_a_limit(ranks_per_node):
    most = {}
    for history in (1, 8):
        most[history], taken = behind(history, ranks_per_node)
        assert taken[-1] < taken[30] + 3  # not 29 more: only rounds whose messages are on their way are kept
        assert most[history] < 2 * history + 20
    ranks = {1: 1, 2: 2, "all": 3}[ranks_per_node]  # of a node, which share what is kept
    assert most[8] - most[1] >= 4 / ranks


def test_for_a_rank_that_has_left_nothing_is_kept():
    """Else the node would keep all results that its records can hold."""

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT, np.float32), policy="full", history=20)
        if comm.rank == 2:
            ar.leave()
            left.set()
            return 0.0
        assert left.wait(LIMIT)
        for _ in range(40):
            ar.contribute(np.ones(COUNT, np.float32)).wait(timeout=LIMIT)
        taken = ar.statistics().memory_bytes / ARRAY
        ar.close(timeout=LIMIT)
        return taken

    left = threading.Event()
    assert max(run_ranks(3, program)) < 3
