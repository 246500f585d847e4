"""`is_same_on_all_ranks`: whether a buffer is the same on all ranks, in type, shape and every bit."""

import threading
import time
import tracemalloc

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.agreement.consistency import describe_ranks
from pycollectives.agreement.fingerprint import Fingerprint, hash_of_bits
from pycollectives.testing import loopback, run_ranks


def told(*buffers):
    """What `is_same_on_all_ranks` returns or raises on each rank, which has one of the buffers."""
    return run_ranks(len(buffers), lambda comm: comm.is_same_on_all_ranks(buffers[comm.rank]), return_exceptions=True)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_equal_replicas(size):
    assert told(*[np.arange(1000.0) for _ in range(size)]) == [True] * size


@pytest.mark.parametrize("position", [0, 500, 999])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_bit_of_one_rank(rank, position):
    replicas = [np.ones(1000) for _ in range(3)]
    replicas[rank].view(np.uint64)[position] ^= 1
    assert told(*replicas) == [False] * 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(6), np.zeros((2, 3))),
        (np.zeros(4, "f4"), np.zeros(4, "i4")),
        (np.zeros(0), np.zeros((0, 3))),
        (np.zeros(0), np.zeros(0, "f4")),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(4, "<f4"), np.zeros(4, ">f4")),
        (np.array(0.0), np.array(-0.0)),
        ([np.zeros(4), 2], np.zeros(3)),
    ],
    ids=str,
)
def test_different(one, other):
    assert told(one, other) == [False, False]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array(3.0), np.float64(3.0)),
        (np.full(2, np.nan), np.full(2, np.nan)),
        ([np.arange(4.0), 2], np.arange(2.0)),
        (bytearray(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (np.arange(3, dtype=">u4"), np.arange(3, dtype=">u4")),
        (np.ones((2, 0)), np.ones((2, 0))),
        (np.array([True, False]), np.array([True, False])),
        (np.array([1 + 2j]), np.array([1 + 2j])),
        (np.ma.array([1.0, 2.0]), np.array([1.0, 2.0])),
        (np.arange(10.0)[2:4], np.array([2.0, 3.0])),
    ],
    ids=str,
)
def test_the_same(one, other):
    assert told(one, other) == [True, True]


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert told(*[np.ones(3, ml_dtypes.bfloat16)] * 2) == [True] * 2
    assert told(np.ones(3, ml_dtypes.bfloat16), np.ones(3, ml_dtypes.bfloat16).view(np.uint16)) == [False] * 2


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (np.ones((4, 4))[:, 1], BufferError, "C-contiguous"),
        (np.asfortranarray(np.ones((4, 4))), BufferError, "C-contiguous"),
        ([1.0, 2.0], TypeError, "expected a buffer"),
        (None, TypeError, "expected a buffer"),
        ([np.ones(3), 4], ValueError, "a count of 0 to 3"),
        (np.array([object()]), TypeError, "without Python objects"),
    ],
    ids=["strided", "Fortran", "list", "None", "count", "objects"],
)
def test_a_buffer_that_is_refused_is_an_error_of_all(wrong, error, text):
    """And the communicator is as usable as before."""

    def program(comm):
        mine = wrong if comm.rank == 1 else np.ones(3)
        with pytest.raises(error if comm.rank == 1 else pc.MismatchError, match=text) as caught:
            comm.is_same_on_all_ranks(mine)
        if comm.rank != 1:
            assert f"is_same_on_all_ranks: refused on rank 1: {error.__name__}" in str(caught.value)
        return comm.is_same_on_all_ranks(np.ones(3))

    assert run_ranks(3, program) == [True] * 3


def test_where_others_create_a_collective():
    def program(comm):
        with pytest.raises(pc.MismatchError, match="is_same_on_all_ranks on rank 0, partial_allreduce on ranks 1-2"):
            comm.is_same_on_all_ranks(np.ones(1)) if comm.rank == 0 else comm.partial_allreduce(
                count=1, dtype="f8", policy="solo"
            )
        return comm.is_same_on_all_ranks(np.ones(1))

    assert run_ranks(3, program) == [True] * 3


def test_a_rank_that_stays_away():
    first, second = loopback(2, timeout=0.2)
    with pytest.raises(pc.StallError, match="is_same_on_all_ranks: rank 1 did not call it within"):
        first.is_same_on_all_ranks(np.ones(1))
    first.abort()
    second.abort()


@pytest.mark.parametrize("absent", [(4, 6), (0,), (1, 2, 3)])
def test_all_ranks_that_stay_away_are_named_and_no_other(absent):
    """Though they are between others in the tree along which ranks compare."""
    told = threading.Barrier(8)

    def program(comm):
        text = ""
        if comm.rank not in absent:
            with pytest.raises(pc.StallError) as caught:
                comm.is_same_on_all_ranks(np.ones(1))
            text = str(caught.value)
        told.wait(30.0)
        comm.abort()
        return text

    ranks = describe_ranks(absent)
    for rank, text in enumerate(run_ranks(loopback(8, timeout=0.5), program)):
        assert (rank in absent) == (f"is_same_on_all_ranks: {ranks} did not call it within" not in text), text


def test_who_left_is_named_at_once():
    def program(comm):
        if comm.rank == 5:
            comm.abort()
            return ""
        with pytest.raises(pc.StallError) as caught:
            comm.is_same_on_all_ranks(np.ones(1))
        comm.abort()
        return str(caught.value)

    begin = time.monotonic()
    for rank, text in enumerate(run_ranks(loopback(8, timeout=60.0), program)):
        assert rank == 5 or "rank 5 left the communicator" in text or "gave up" in text
    assert time.monotonic() - begin < 30


def test_a_closed_communicator():
    (comm,) = loopback(1)
    comm.close()
    with pytest.raises(pc.ClosedError):
        comm.is_same_on_all_ranks(np.ones(1))


def test_nothing_is_copied():
    array = np.ones(1 << 20)
    tracemalloc.start()
    try:
        hash_of_bits(array)
        assert tracemalloc.get_traced_memory()[1] < array.nbytes // 100
    finally:
        tracemalloc.stop()


def test_the_type_s_name_may_be_long():
    long = np.zeros(2, [("x" * 5000, "f8")])
    assert told(long, long.copy()) == [True, True]
    assert Fingerprint.of(long) != Fingerprint.of(np.zeros(2, [("y" * 5000, "f8")]))
