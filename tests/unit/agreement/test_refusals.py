"""What one rank alone refuses at the beginning of a creation is an error on all, and the next creation works."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0


class WithoutNumbers:
    """An engine that has no number left for a new collective."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def check_next_id(self):
        raise RuntimeError("too many collectives")


def test_no_number_for_a_new_collective_on_one_rank():
    def program(comm):
        engine = comm._context.engine
        if comm.rank == 0:
            comm._context.engine = WithoutNumbers(engine)
        with pytest.raises(RuntimeError if comm.rank == 0 else pc.MismatchError, match="too many collectives"):
            comm.partial_allreduce(np.zeros(1))
        comm._context.engine = engine
        return comm.partial_allreduce(np.zeros(1), policy=pc.Full()).allreduce(np.ones(1), timeout=LIMIT)[0][0]

    assert run_ranks(2, program) == [2.0, 2.0]
