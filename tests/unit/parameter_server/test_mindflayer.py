"""Workers that ask whether their gradient is in time, and give it up if it is not (MindFlayer); ranks as threads."""

from __future__ import annotations

import numpy as np
import pytest

from pycollectives import servers
from pycollectives.testing import run_ranks

LIMIT = 30.0
ENOUGH, TOO_SHORT = 1000.0, 1e-9
WHERE = [{"servers": 1, "workers": [0, 1, 2]}, {"servers": 2, "workers": [0, 1, 2]}, {"servers": "node"}]

where = pytest.mark.parametrize("where", WHERE, ids=["one", "two", "node"])
shapes = pytest.mark.parametrize("ranks_per_node", [1, "all"])


def step(ps, gradient, w):
    """What docs/parameter-server.md says that a worker does; whether it has pushed."""
    if ps.is_in_time():
        ps.push_pull(gradient, w, timeout=LIMIT)
        return True
    request = ps.give_up()
    ps.pull(w, timeout=LIMIT)
    assert request.test()
    return False


@where
@shapes
def test_a_trial_that_is_given_up_has_no_part_in_the_mean(where, ranks_per_node):
    """The others do not wait for more of that worker, which gets the same weights."""
    sync = servers.MindFlayer(1, (ENOUGH, ENOUGH, TOO_SHORT))

    def program(comm):
        ps = comm.parameter_server(np.zeros(20), sync=sync, update=servers.SGD(1.0), **where)
        w = np.zeros(20)
        ps.pull(w, timeout=LIMIT)
        steps = []
        for number in range(1, 5):
            has_pushed = step(ps, np.full(20, -1.0 - comm.rank), w)  # the mean of the first two is -1.5
            steps.append((has_pushed, w.min(), w.max(), ps.clock))
            assert ps.last_push.used == has_pushed
            assert ps.version == number
        given_up = [(worker.pushes, worker.given_up) for worker in ps.server_statistics(timeout=LIMIT).workers]
        assert given_up == [(4, 0), (4, 0), (0, 4)]
        ps.pull(w, timeout=LIMIT)
        return steps

    in_time = [(True, 1.5 * number, 1.5 * number, number) for number in range(1, 5)]
    late = [(False, *of_step) for _, *of_step in in_time]
    assert run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT) == [in_time, in_time, late]


@where
def test_a_gradient_that_is_pushed_late_all_the_same_is_discarded(where):
    """From the second on: no time is known of the first."""
    sync = servers.MindFlayer(1, (ENOUGH, ENOUGH, TOO_SHORT))

    def program(comm):
        ps = comm.parameter_server(np.zeros(20), sync=sync, update=servers.SGD(1.0), **where)
        w = np.zeros(20)
        ps.push_pull(np.full(20, -3.0), w, timeout=LIMIT)
        ps.push_pull(np.full(20, -1.0 - comm.rank), w, timeout=LIMIT)
        assert [worker.discarded for worker in ps.server_statistics(timeout=LIMIT).workers] == [0, 0, 1]
        np.testing.assert_allclose(w, 3 + 1.5)
        return ps.last_push.used

    assert run_ranks(3, program, timeout=LIMIT) == [True, True, False]


@where
def test_if_all_give_up_there_is_no_update_and_all_go_on(where):
    def program(comm):
        ps = comm.parameter_server(np.ones(20), sync=servers.MindFlayer(2, TOO_SHORT), update=servers.SGD(1.0), **where)
        w = np.ones(20)
        ps.pull(w, timeout=LIMIT)
        for _ in range(6):
            assert not step(ps, w, w)
        return w.min(), w.max(), ps.version, ps.clock, ps.server_statistics(timeout=LIMIT).superstep

    assert run_ranks(3, program, timeout=LIMIT) == [(1, 1, 0, 6, 3)] * 3
