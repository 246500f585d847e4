"""What comes between an `equalize` and its repetition, or into its middle."""

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

SHAPES = {"flat": 1, "mixed": 2, "board": "all"}


@pytest.fixture(params=SHAPES)
def shape(request):
    return {"ranks_per_node": SHAPES[request.param]}


def stalled(model):
    """Let one call of `equalize` run into its limit."""
    with pytest.raises(pc.StallError):
        model.equalize(timeout=0.1)


def test_what_is_applied_between_a_stall_and_the_repetition_counts(shape):
    has_applied = threading.Event()

    def program(comm):
        with comm.pairwise_averaging(np.zeros(3), topology="ring") as model:
            if comm.rank == 1:
                stalled(model)
                model.apply(np.full(3, 3.0))
                has_applied.set()
            else:
                has_applied.wait(30)
            return model.equalize()

    np.testing.assert_array_equal(run_ranks(3, program, **shape), 1.0)


def test_a_rank_that_closes_after_a_stall_has_no_part(shape):
    """Nothing was averaged before: rank 1's model is all its own."""
    has_closed = threading.Event()

    def program(comm):
        model = comm.pairwise_averaging(np.full(3, float(comm.rank**2)), topology="ring", pace="per_step")
        if comm.rank == 1:
            stalled(model)
            model.leave()
            has_closed.set()
            return None
        has_closed.wait(30)
        mean = model.equalize()
        model.leave()
        return mean[0]

    assert run_ranks(3, program, **shape) == [2.0, None, 2.0]


def test_another_thread_closes_during_equalize(shape):
    """The thread in it is told, and the other ranks go on without this one."""
    has_closed = threading.Event()

    def program(comm):
        model = comm.pairwise_averaging(np.full(3, 7.0), topology="ring")
        if comm.rank == 0:
            closer = threading.Timer(0.2, lambda: (model.leave(), has_closed.set()))
            closer.start()
            with pytest.raises(pc.ClosedError, match="is closed"):
                model.equalize(timeout=30)
            return None
        has_closed.wait(30)
        mean = model.equalize(timeout=30)
        model.leave()
        return mean[0]

    assert run_ranks(3, program, **shape) == [None, 7.0, 7.0]
