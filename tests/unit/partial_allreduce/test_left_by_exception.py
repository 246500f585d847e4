"""A rank that leaves by an exception while others need it."""

import contextlib

import numpy as np
import pytest

from pycollectives.testing import run_ranks


def test_the_others_are_told_once_who_left_and_by_what(capfd):
    def program(comm):
        infos = []
        with contextlib.suppress(KeyError), comm.partial_allreduce(np.zeros(1), policy="full", name="sums") as ar:
            for step in range(4):
                if comm.rank == 1 and step == 2:
                    raise KeyError("of rank 1")
                infos.append(ar.contribute(np.ones(1)).wait(timeout=30.0))
        return [info.contributors for info in infos]

    with pytest.warns(RuntimeWarning, match="ended with KeyError"):
        contributors = run_ranks(3, program)
    assert contributors[1] == [(0, 1, 2)] * 2
    assert [contributors[rank][-1] for rank in (0, 2)] == [(0, 2)] * 2
    told = [line for line in capfd.readouterr().err.splitlines() if "rank 1 left 'sums' by KeyError" in line]
    assert len(told) == 2  # on each of the others
