"""`PYC_CHECK=1`: what is noted of handles that are waited for in another order than that of their calls."""

import threading

import numpy as np

from pycollectives.testing import run_ranks

ONE = np.ones(4)


def on(ranks, function):
    """What the function returns on each rank, with checks."""
    return run_ranks(ranks, function, check=True, timeout=20.0)


def test_handles_that_are_waited_for_out_of_order():
    """A handle that is looked at when a newer round was given tells of an older one than `result` is of."""
    turn = threading.Barrier(2)

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        if comm.rank == 0:
            older = ar.contribute(ONE)
            turn.wait()
            turn.wait()
            ar.contribute(ONE).wait(timeout=20.0)
            assert older.wait(timeout=20.0).round == 0
        else:
            turn.wait()
            for _ in range(4):
                ar.contribute(ONE).wait(timeout=20.0)
            turn.wait()
        noted = set(ar._collective._rounds)
        comm.close()
        return noted

    first, _ = on(2, program)
    assert 0 not in first


def test_an_older_handle_that_is_looked_at_first():
    """Both calls came late for a round, and were given it at once: the result is of the newer."""
    turn = threading.Barrier(2)

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo", missed="latest")
        if comm.rank == 0:
            turn.wait()
            older = ar.contribute(0 * ONE)
            turn.wait()
            turn.wait()
            ar.contribute(0 * ONE)
            rounds = (older.wait(timeout=20.0).round, ar.result[0])
        else:
            rounds = []
            for value in (10, 20):
                rounds.append(ar.contribute(value * ONE).wait(timeout=20.0).round)
                turn.wait()
                if value == 10:
                    turn.wait()
        ar.flush()
        comm.close()
        return rounds

    assert on(2, program) == [(0, 20.0), [0, 1]]
