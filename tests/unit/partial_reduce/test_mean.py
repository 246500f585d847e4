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
