"""The mean of a metric over ranks."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_numbers_and_arrays(size, ranks_per_node):
    def program(comm):
        number = comm.mean(comm.rank)
        scalar = comm.mean(np.float32(comm.rank))
        integers = comm.mean(np.full((2, 3), comm.rank, np.int8))
        floats = comm.mean(np.full(2, comm.rank, np.float32))
        return number, scalar, integers.dtype, integers.tolist(), floats.dtype, floats.tolist()

    mean = sum(range(size)) / size
    of_float32 = float(np.float32(mean))
    expected = (mean, mean, np.float64, [[mean] * 3] * 2, np.float32, [of_float32] * 2)
    assert run_ranks(size, program, ranks_per_node=ranks_per_node) == [expected] * size


def test_the_argument_is_left_alone():
    def program(comm):
        x = np.full(2, float(comm.rank))
        comm.mean(x)
        return x.tolist()

    assert run_ranks(2, program) == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("x", "text"), [(np.ones(1, complex), "expected real numbers, got complex128"), ("1", "str"), ([1.0], "list")]
)
def test_what_has_no_mean_is_refused(x, text):
    def program(comm):
        with pytest.raises(TypeError, match=text):
            comm.mean(x)

    run_ranks(1, program)


def test_it_says_at_once_that_a_flush_is_missing():
    def program(comm):
        with comm.partial_allreduce(count=1, dtype="f8", policy=pc.Quorum(2), name="gradients") as ar:
            ar.contribute(np.ones(1))
            with pytest.raises(RuntimeError, match=r"mean: flush first: .* call flush\(\) on 'gradients', then mean$"):
                comm.mean(1.0)
            ar.flush()
            return comm.mean(1.0)

    assert run_ranks(3, program) == [1.0] * 3


def test_a_preduce_of_all_ranks_asks_for_a_flush_and_one_of_fewer_does_not():
    def program(comm):
        with comm.partial_allreduce(count=1, dtype="f8", policy=pc.Quorum(2), name="gradients") as ar:
            ar.contribute(np.ones(1))
            x = np.full(1, float(comm.rank))
            with pytest.raises(RuntimeError, match=r"preduce: flush first: .*'gradients'"):
                comm.preduce(x, [2, 0, 1])
            if comm.rank != 1:
                comm.preduce(x, [2, 0])
            ar.flush()
            comm.preduce(x, range(3))
            return float(x[0])

    assert run_ranks(3, program) == [1.0] * 3


@pytest.mark.parametrize(("x", "timeout"), [("1", None), (1.0, -1.0)])
def test_a_refusal_on_one_rank_is_an_error_on_all_and_all_go_on(x, timeout):
    def program(comm):
        if comm.rank == 1:
            with pytest.raises((TypeError, ValueError)):
                comm.mean(x, timeout=timeout)
        else:
            with pytest.raises(pc.MismatchError, match=r"mean: refused on rank 1: (Type|Value)Error"):
                comm.mean(1.0)
        return comm.mean(comm.rank)

    assert run_ranks(3, program) == [1.0] * 3


@pytest.mark.parametrize(("x", "what"), [(np.ones(2), "shape"), (np.ones(1, np.float32), "dtype")])
def test_shapes_and_types_are_compared(x, what):
    def program(comm):
        with pytest.raises(pc.MismatchError, match=f"mean: arguments differ: {what}: .* on ranks 0, 2"):
            comm.mean(x if comm.rank == 1 else np.ones(1))
        return comm.mean(comm.rank)

    assert run_ranks(3, program) == [1.0] * 3


def test_ranks_that_make_different_calls_are_told():
    def program(comm):
        with pytest.raises(pc.MismatchError, match="ranks make different calls: mean on rank 0, partial_allreduce on"):
            if comm.rank == 0:
                comm.mean(1.0)
            else:
                comm.partial_allreduce(count=1, dtype="f8")
        return comm.mean(comm.rank)

    assert run_ranks(2, program) == [0.5] * 2


def test_one_that_stalls_names_the_missing_and_what_is_open_goes_on():
    def program(comm):
        with comm.partial_allreduce(count=1, dtype="f8", policy="solo") as ar:
            if comm.rank == 0:
                with pytest.raises(pc.StallError, match="mean: rank 1 did not call it within"):
                    comm.mean(1.0, timeout=0.3)
            ar.contribute(np.ones(1)).wait(timeout=30.0)
            return ar.flush(timeout=30.0).round

    assert len(set(run_ranks(2, program))) == 1
