"""The board: what only ranks that share memory can get wrong."""

import contextlib
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0


def on_board(size, program):
    return run_ranks(size, program, ranks_per_node=size, timeout=100.0)


@pytest.mark.parametrize("count", [0, 1, 16_384, 16_385, 300_001])
@pytest.mark.parametrize("dtype", ["int64", "float16", "uint8"])
def test_chunks_that_several_ranks_reduce(count, dtype):
    """Counts on both sides of one chunk (64 KiB), and many chunks, which waiting ranks help with."""

    def program(comm):
        ar = comm.partial_allreduce(count=count, dtype=dtype, policy=pc.Full())
        assert ar.algorithm == "board"
        for call in range(5):
            result, info = ar.allreduce((np.arange(count) % 7 + call).astype(ar.dtype), timeout=LIMIT)
            assert info.contributors == (0, 1, 2, 3)
            np.testing.assert_array_equal(result, 4 * (np.arange(count) % 7 + call))
        return True

    assert all(on_board(4, program))


def test_a_result_that_is_kept_never_changes():
    """More results than the board lends: the others are copies."""

    def program(comm):
        ar = comm.partial_allreduce(count=1000, dtype="int64", policy=pc.Full())
        results = [ar.allreduce(np.full(1000, call), timeout=LIMIT)[0] for call in range(50)]
        for call, result in enumerate(results):
            assert not result.flags.writeable
            np.testing.assert_array_equal(result, 3 * call)
        return True

    assert all(on_board(3, program))


def test_one_contributor_s_data_is_the_result():
    """Nothing is reduced and nothing is copied but what is handed over."""

    def program(comm):
        ar = comm.partial_allreduce(count=3, dtype="float32", policy=pc.Solo())
        if comm.rank == 1:
            ar.allreduce(np.array([1, 2, 3], np.float32), timeout=LIMIT)
            there.set()
            return None
        there.wait(LIMIT)
        result, info = ar.allreduce(np.zeros(3, np.float32), timeout=LIMIT)  # late: it is given what rank 1 did
        return result.tolist(), info.contributors

    there = threading.Event()
    assert on_board(2, program)[0] == ([1, 2, 3], (1,))


def test_a_sleeping_rank_is_given_the_sum_of_what_the_others_did():
    """More rounds than the history holds are folded for it, by the others."""

    def program(comm):
        ar = comm.partial_allreduce(count=4, dtype="int64", missed="sum", history=2, policy="solo")
        if comm.rank == 0:
            done.wait(LIMIT)
        else:
            for _ in range(100):
                ar.allreduce(np.ones(4, np.int64), timeout=LIMIT)
            done.set()
        result, info = ar.allreduce(np.zeros(4, np.int64), timeout=LIMIT)
        total = result + 0
        ar.flush(timeout=LIMIT)
        return (total + ar.result).tolist() if comm.rank == 0 else info.overrun

    done = threading.Event()
    given, _ = on_board(2, program)
    assert given == [100] * 4


def test_a_late_call_releases_a_round_that_is_held_for_it():
    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="int64", max_staleness=1, policy="solo")
        if comm.rank == 0:
            ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)  # rank 1 is absent
            held.set()
            ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)  # waits for it
        else:
            held.wait(LIMIT)
            time.sleep(0.05)
            assert ar.contribute(np.ones(1, np.int64)).late
        return True

    held = threading.Event()
    assert all(on_board(2, program))


def test_grace_ends_though_nobody_else_comes():
    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Quorum(1, grace=0.05))
        if comm.rank == 0:
            begin = time.monotonic()
            _, info = ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)
            assert info.contributors == (0,)
            assert time.monotonic() - begin >= 0.05
            done.set()
        done.wait(LIMIT)
        return True

    done = threading.Event()
    assert all(on_board(3, program))


def test_no_file_has_a_name_and_no_descriptor_stays_open():
    def ours():
        links = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # another thread's
                links.append(str(descriptor.readlink()))
        return [name for name in [*links, *os.listdir("/dev/shm")] if "pycollectives" in name]

    def program(comm):
        ar = comm.partial_allreduce(count=1000, dtype="f8", policy=pc.Full())
        ar.allreduce(np.ones(1000), timeout=LIMIT)
        return ours()

    assert on_board(2, program) == [[], []]


def test_memory_that_cannot_be_had():
    """Every rank is told, nothing is made, and the flat path works by explicit choice."""

    def program(comm):
        arguments = {"count": 1_000_000, "dtype": "f8", "policy": pc.Full()}
        with pytest.raises(RuntimeError, match=r"rank 0: .*ftruncate: File too large; ranks_per_node=1 works without"):
            comm.partial_allreduce(**arguments)
        with comm.partial_allreduce(**arguments, algorithm="ring") as ar:
            return ar.allreduce(np.ones(1_000_000), timeout=LIMIT)[0][-1]

    with little_memory():
        assert on_board(3, program) == [3.0] * 3


def test_memory_that_groups_cannot_have():
    """Nothing is made and nothing is sent: short values go on by messages."""

    def program(comm):
        weights, short = np.ones(1_000_000), np.full(10, float(comm.rank))
        with pytest.raises(RuntimeError, match=r"rank 0: .*ftruncate: File too large; ranks_per_node=1 works without"):
            comm.partial_reduce(weights, groups=pc.groups.StaticGroups(3))
        with pytest.raises(RuntimeError, match="ftruncate: File too large; ranks_per_node=1 works without"):
            comm.preduce(weights, range(3), timeout=LIMIT)
        comm.preduce(short, range(3), timeout=LIMIT)
        with comm.partial_reduce(short, groups=pc.groups.StaticGroups(3)) as pr:
            pr.average(short, step=1, timeout=LIMIT)
        return short.tolist()

    with little_memory():
        assert on_board(3, program) == [[1.0] * 10] * 3


@pytest.mark.parametrize("ranks_per_node", [1, 2, 3])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 2**57}, "times 1152921504606846976 bytes are more than can be addressed"),
        ({"count": 2**60 - 1}, "times 9223372036854775[0-9]* bytes are more than can be addressed"),
        ({"count": 2**60 - 1, "op": "AVG", "dtype": "i8"}, "are more than can be addressed"),
        ({"count": 2**63 - 1, "op": "AVG", "dtype": "i1"}, "9223372036854775807 times 8 bytes are more than can be"),
        ({"count": 1, "missed": "sum", "history": 2**40}, "history: a board cannot number [0-9]+ buffers"),
    ],
)
def test_more_bytes_than_can_be_counted(ranks_per_node, arguments, message):
    """On every rank, whatever node it is of, before anything is made."""

    def program(comm):
        with pytest.raises(ValueError, match=message):
            comm.partial_allreduce(**{"dtype": "f8", **arguments})
        with comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full()) as ar:
            return ar.allreduce(np.ones(1), timeout=LIMIT)[0][0]

    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [3.0] * 3


def test_who_cannot_be_looked_at_is_alive():
    """/proc says who lives, but only to a process that has a free file descriptor."""

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full())
        if comm.rank == 1:
            with descriptors(free=0):
                time.sleep(0.6)  # the other looks around meanwhile
        return ar.allreduce(np.ones(1), timeout=LIMIT)[0][0]

    assert on_board(2, program) == [2.0] * 2


def test_who_could_not_look_at_itself_is_alive():
    """One descriptor is free while a board is made, and that is its memory's."""

    def program(comm):
        comm.partial_allreduce(**arguments).leave()  # what is read from files is read now
        barrier.wait(LIMIT)
        with descriptors(free=1) if comm.rank == 0 else contextlib.nullcontext():
            barrier.wait(LIMIT)
            ar = comm.partial_allreduce(**arguments)
            barrier.wait(LIMIT)
        if comm.rank == 1:
            time.sleep(0.6)
        return ar.allreduce(np.ones(1), timeout=LIMIT)[0][0]

    arguments = {"count": 1, "dtype": "f8", "policy": pc.Full(), "algorithm": "board"}
    barrier = threading.Barrier(2)
    assert on_board(2, program) == [2.0] * 2


@contextlib.contextmanager
def descriptors(*, free):
    """No more files than so many can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(held.pop())
        yield
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def little_memory():
    """No file, hence no shared memory, of more than 256 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_flat_by_explicit_choice():
    def program(comm):
        assert comm.ranks_per_node == 2
        ring = comm.partial_allreduce(count=8, dtype="f8", algorithm="ring", policy=pc.Full())
        board = comm.partial_allreduce(count=8, dtype="f8", policy=pc.Full())
        return ring.algorithm, board.algorithm, *(ar.allreduce(np.ones(8), timeout=LIMIT)[0][0] for ar in (ring, board))

    assert on_board(2, program) == [("ring", "board", 2.0, 2.0)] * 2


@pytest.mark.parametrize(("ranks_per_node", "nodes"), [(1, (0, 1, 2, 3, 4)), (2, (0, 0, 1, 1, 2)), (9, (0,) * 5)])
def test_nodes(ranks_per_node, nodes):
    def program(comm):
        assert (comm.nodes, comm.ranks_per_node) == (nodes, nodes.count(0))
        with comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full()) as ar:
            result, info = ar.allreduce(np.array([10**comm.rank]), timeout=LIMIT)
        return int(result[0]), info.contributors, info.active

    assert run_ranks(5, program, ranks_per_node=ranks_per_node) == [(11111, (0, 1, 2, 3, 4), 5)] * 5
