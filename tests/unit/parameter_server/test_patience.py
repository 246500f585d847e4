"""A pause of a worker that is short for a person, and long for its iterations."""

import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks


@pytest.mark.parametrize("where", [{"servers": 1, "workers": [0, 1, 2]}, {"servers": "node"}], ids=["one", "node"])
def test_who_pauses_for_less_than_a_second_is_waited_for(where, capfd):
    """Iterations take microseconds, and ten times as long is nothing to a machine with fewer cores than ranks."""

    def program(comm):
        w = np.zeros(3)
        with comm.parameter_server(like=w, sync=pc.BSP(patience=0.01), update=pc.SGD(1.0), **where) as ps:
            for step in range(20):
                time.sleep(0.3 if (comm.rank, step) == (2, 10) else 0.0)
                ps.push_pull(np.full(3, float(comm.rank)), w, timeout=30.0)
            assert ps.last_push.used
        return w.tolist()

    assert run_ranks(3, program) == [[-20.0] * 3] * 3
    assert "has stopped pushing" not in capfd.readouterr().err
