"""The parameter server: arguments that are refused, workers that do not come, and who is left out; ranks as threads."""

import math
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
ONE = np.ones(1)
SHAPES = [1, 2, "all"]
WHERE = [{"servers": 1, "workers": [0, 1, 2]}, {"servers": 2, "workers": [0, 1, 2]}, {"servers": "node"}]
MANY = np.zeros(20_000)

where = pytest.mark.parametrize("where", WHERE, ids=["one", "two", "node"])
shapes = pytest.mark.parametrize("ranks_per_node", SHAPES)


# --- Arguments


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"initial": np.zeros(2, np.int32)}, TypeError, "initial: expected elements of float16"),
        ({"initial": np.zeros(0)}, ValueError, "initial: expected at least one element"),
        ({"initial": np.zeros((4, 4))[:, ::2]}, BufferError, "C-contiguous"),
        ({"sync": 3}, TypeError, r"sync: expected a synchronization such as BSP\(\), SSP\(3\) or 'ssp:3', got 3"),
        ({"sync": "ssp"}, ValueError, "sync: expected .*ssp"),
        ({"update": None}, TypeError, r"update: expected a rule such as SGD\(0.1\)"),
        ({"update": pc.servers.SGD}, TypeError, r"update: expected a rule such as SGD\(0.1\)"),
        ({"sync": pc.servers.EAMSGD(1, 0.1)}, ValueError, r"update: expected None under EAMSGD\(period=1, alpha=0.1\)"),
        ({"servers": 0}, ValueError, "servers: expected 1 to 3, the number of ranks, got 0"),
        ({"servers": 4}, ValueError, "servers: expected 1 to 3"),
        ({"servers": [1, 1]}, ValueError, "servers: expected different ranks"),
        ({"servers": [3]}, ValueError, "servers: expected 0 <= servers < 3"),
        ({"servers": []}, ValueError, "servers: expected at least one rank"),
        ({"servers": "board"}, ValueError, "servers: expected 'node'"),
        ({"servers": 2.5}, TypeError, "servers: expected a number, a list of ranks or 'node', got 2.5"),
        ({"initial": ONE, "servers": 2}, ValueError, "servers: expected at most 1, one for each element"),
        ({"workers": [0, 3]}, ValueError, "workers: expected 0 <= workers < 3"),
        ({"workers": 2}, TypeError, "workers: expected None or a list of ranks"),
        ({"nan": "ignore"}, ValueError, "nan: expected 'reject' or 'skip' or 'accept', got 'ignore'"),
        ({"name": ""}, ValueError, "name"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_on_all_ranks_before_anything_is_made(arguments, kind, text):
    def program(comm):
        given = {"initial": np.zeros(4), "update": pc.servers.SGD(1.0), **(arguments if comm.rank == 1 else {})}
        with pytest.raises(kind if comm.rank == 1 else pc.MismatchError, match=text if comm.rank == 1 else "rank 1"):
            comm.parameter_server(**given)
        return comm.parameter_server(np.zeros(4), update=pc.servers.SGD(1.0)).closed

    assert run_ranks(3, program) == [False] * 3


@pytest.mark.parametrize("differing", [
    {"sync": pc.servers.ASP()}, {"update": pc.servers.SGD(0.5)}, {"servers": "node"}, {"workers": [0, 1]},
    {"nan": "skip"},
    {"initial": np.zeros(5)}, {"initial": np.zeros(4, "f4")},
], ids=str)  # fmt: skip
def test_arguments_that_differ(differing):
    def program(comm):
        given = {"initial": np.zeros(4), "update": pc.servers.SGD(1.0), **(differing if comm.rank == 2 else {})}
        with pytest.raises(pc.MismatchError, match="rank 2"):
            comm.parameter_server(**given)

    run_ranks(3, program)


@pytest.mark.parametrize(("made", "text"), [
    (lambda: pc.servers.SGD(-1), "rate"), (lambda: pc.servers.SGD(1, momentum=1), "momentum"),
    (lambda: pc.servers.SGD(math.nan), "rate"), (lambda: pc.servers.Adam(1, beta1=1.5), "beta1"),
    (lambda: pc.servers.Adam(math.inf), "rate"),
])  # fmt: skip
def test_rules_out_of_range(made, text):
    with pytest.raises(ValueError, match=text):
        made()


@pytest.mark.parametrize("servers", [1, "node"])
def test_arguments_of_calls(servers):
    with loopback(1)[0] as comm:
        ps = comm.parameter_server(np.zeros(2), update=pc.servers.SGD(1.0), servers=servers, name="own")
        assert ps.last_push is None
        assert (ps.clock, ps.version) == (0, 0)
        for wrong, kind in [(np.zeros(3), ValueError), (np.zeros(2, "f4"), TypeError), (np.zeros(4)[::2], BufferError)]:
            with pytest.raises(kind, match="own: "):
                ps.push(wrong)
            with pytest.raises(kind, match="own: pull: "):
                ps.pull(wrong)
        fixed = np.zeros(2)
        fixed.flags.writeable = False
        with pytest.raises(BufferError, match="read-only"):
            ps.pull(fixed)
        with pytest.raises(ValueError, match="timeout: expected"):
            ps.pull(np.zeros(2), timeout=-1.0)
        request = ps.push(np.ones(2))
        assert (request.clock, ps.clock) == (1, 1)
        request.wait(timeout=LIMIT)
        assert pc.wait_all([request]) == [ps.last_push]
        assert pc.wait_any([request]) == 0
        out = np.zeros(2)
        ps.pull(out, timeout=math.inf)
        assert out.tolist() == [-1, -1]
        assert ps.last_push == pc.PushInfo(clock=1, version=1, staleness=0, used=True)
        assert "own" in repr(ps)


def test_who_does_not_work_may_pull():
    def program(comm):
        ps = comm.parameter_server(np.full(4, 5.0), sync=pc.servers.ASP(), update=pc.servers.SGD(1.0))
        assert (ps.servers, ps.workers, ps.is_server) == ((0,), (1, 2), comm.rank == 0)
        out = np.zeros(4)
        ps.pull(out, timeout=LIMIT)  # before any push
        assert out.max() <= 5
        if comm.rank == 0:
            for call in (lambda: ps.push(out), lambda: ps.push_pull(out, out), ps.give_up, ps.suspend, ps.is_in_time):
                with pytest.raises(RuntimeError, match=r"expected a worker, one of \[1, 2\], got rank 0"):
                    call()
        else:
            ps.push_pull(np.ones(4), out, timeout=LIMIT)
            assert ps.is_in_time()
            with pytest.raises(ValueError, match="give_up: expected the synchronization MindFlayer, got ASP"):
                ps.give_up()
            assert ps.clock == 1

    run_ranks(3, program)


@where
def test_a_gradient_that_comes_too_late_is_in_no_update(where):
    """MindFlayer: the first trial is in time; the second is not, ends the superstep and is thrown away."""

    def program(comm):
        with comm.parameter_server(MANY, sync=pc.servers.MindFlayer(2, 0.2), update=pc.servers.SGD(1.0), **where) as ps:
            w = MANY.copy()
            ps.push_pull(MANY + 1, w, timeout=LIMIT)
            time.sleep(0.4)
            ps.push_pull(MANY + 100, w, timeout=LIMIT)
            np.testing.assert_allclose(w, -1, rtol=1e-12)

    run_ranks(3, program)


@where
def test_weights_that_are_pushed_after_an_absence_are_averaged(where):
    """EAMSGD: what a worker has when it comes back is not thrown away, as a gradient would be."""

    def program(comm):
        with comm.parameter_server(MANY, sync=pc.servers.EAMSGD(1, 0.5), update=None, **where) as ps:
            w = MANY + 8.0
            if comm.rank == 0:
                ps.push_pull(w, w, timeout=LIMIT)
                ps.suspend()
            met.wait(LIMIT)
            if comm.rank == 1:
                ps.push_pull(MANY, MANY.copy(), timeout=LIMIT)
            met.wait(LIMIT)
            if comm.rank == 0:
                ps.push_pull(w, w, timeout=LIMIT)
            return w[0], w[-1]

    met = threading.Barrier(3)
    # 8 and a center of 0 meet at 4, which a worker of 0 pulls to 2: of that and 4 the middle is 3.
    assert run_ranks(3, program)[0] == (3, 3)


def test_a_gradient_and_weights_that_overlap_in_part_are_refused():
    with loopback(1)[0] as comm:
        ps = comm.parameter_server(np.zeros(4), update=pc.servers.SGD(1.0), name="own")
        both = np.zeros(7)
        for gradient, out in ((both[:4], both[1:5]), (both[3:], both[:4])):
            with pytest.raises(ValueError, match="'own': the gradient and out overlap in part"):
                ps.push_pull(gradient, out)
        assert ps.clock == 0
        ps.push_pull(both[:4], both[:4])
        two = np.ones(8)
        ps.push_pull(two[4:], two[:4])
        assert two.tolist() == [-1.0] * 4 + [1.0] * 4


@where
def test_what_is_computed_on_weights_pulled_after_leaving_counts(where):
    """Though others have made updates since; what is computed on weights of before does not."""
    met = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), **where)
        w = MANY.copy()
        outcome = []
        for pulls in (True, False):
            if comm.rank == 0:
                ps.push_pull(MANY + 1, w, timeout=LIMIT)
                ps.suspend()
            met.wait(LIMIT)
            if comm.rank == 1:
                ps.push_pull(MANY + 1, w, timeout=LIMIT)
            met.wait(LIMIT)
            if comm.rank == 0 and pulls:
                ps.pull(w, timeout=LIMIT)
            met.wait(LIMIT)
            if comm.rank == 1:
                ps.push_pull(MANY + 1, w, timeout=LIMIT)
            met.wait(LIMIT)
            if comm.rank == 0:
                ps.push_pull(MANY + 1, w, timeout=LIMIT)
                outcome.append((ps.last_push.staleness, ps.last_push.used))
        met.wait(LIMIT)
        return outcome

    assert run_ranks(3, program)[0] == [(1, True), (2, False)]


@where
def test_the_last_push_is_one_after_which_the_worker_was_let_go(where):
    met = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), **where)
        w = MANY.copy()
        found = []
        for _ in range(2):
            if comm.rank < 2:
                ps.push(MANY + 1)
                found.append(ps.last_push)
            met.wait(LIMIT)
            if comm.rank == 2:
                ps.push(MANY + 1)
            ps.pull(w, timeout=LIMIT)
            found.append(ps.last_push)
        return found

    first, second = pc.PushInfo(1, 1, 0, True), pc.PushInfo(2, 2, 0, True)
    assert run_ranks(3, program) == [[None, first, first, second]] * 2 + [[first, second]]


@where
def test_a_push_without_effect_is_counted_apart(where):
    """As `WorkerStatistics` says: beside trials that are given up, not as a gradient that has come."""
    met = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), nan="skip", **where)
        w = MANY.copy()
        ps.push_pull(MANY + (math.nan if comm.rank == 1 else 3.0), w, timeout=LIMIT)
        assert w[0] == -2
        assert ps.last_push == pc.PushInfo(1, 1, 0, comm.rank != 1)
        ps.push_pull(MANY + 3, w, timeout=LIMIT)
        met.wait(LIMIT)
        counted = ps.server_statistics(timeout=LIMIT)
        met.wait(LIMIT)
        return [(each.pushes, each.discarded, each.given_up) for each in counted.workers], counted.staleness[0]

    assert run_ranks(3, program) == [([(2, 0, 0), (1, 0, 1), (2, 0, 0)], 5)] * 3


# --- Who has not come


@shapes
@where
def test_a_stall_names_the_worker_and_pull_goes_on(where, ranks_per_node):
    """What was pushed counts once."""
    stalled = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), name="own", **where)
        w = MANY.copy()
        text = ""
        if comm.rank == 2:
            stalled.wait(LIMIT)
            ps.push_pull(MANY + 3, w, timeout=LIMIT)
        else:
            with pytest.raises(pc.StallError) as caught:
                ps.push_pull(MANY, w, timeout=0.4)
            text = str(caught.value)
            assert ps.clock == 1
            stalled.wait(LIMIT)
            ps.pull(w, timeout=LIMIT)
        return text, w[0], w[-1]

    outcome = run_ranks(3, program, ranks_per_node=ranks_per_node)
    for text, *_ in outcome[:2]:
        begin = "parameter server 'own', pull after push 1 (waits for the push of rank 2): not complete after "
        assert text.startswith(begin), text
        assert "have not arrived: rank 2 (alive; last call" in text, text
    assert [(first, last) for _, first, last in outcome] == [(-1.0, -1.0)] * 3


@where
def test_a_stall_says_where_the_worker_waits(where):
    met = threading.Barrier(3)

    def program(comm):
        both = [comm.parameter_server(np.zeros(4), update=pc.servers.SGD(1.0), name=name, **where) for name in "ab"]
        met.wait(LIMIT)
        other = "'b': rank 2" if comm.rank < 2 else "waits for the push of ranks 0, 1"
        with pytest.raises(pc.StallError, match=other):
            both[comm.rank // 2].push_pull(np.zeros(4), np.zeros(4), timeout=1 if comm.rank < 2 else 3)
        met.wait(LIMIT)

    run_ranks(3, program)


@shapes
@where
def test_another_thread_may_close_it_while_one_waits(where, ranks_per_node):
    ended = threading.Event()

    def program(comm):
        ps = comm.parameter_server(MANY, update=pc.servers.SGD(1.0), name="own", **where)
        if comm.rank > 0:
            assert ended.wait(LIMIT)
            return
        closing = threading.Timer(0.2, ps.leave)
        closing.start()
        with pytest.raises(pc.ClosedError, match="'own' was closed meanwhile"):
            ps.push_pull(MANY, MANY.copy(), timeout=LIMIT)
        closing.join()
        ended.set()

    run_ranks(3, program, ranks_per_node=ranks_per_node)


@shapes
@where
def test_who_stops_pushing_is_left_out_and_comes_back(where, ranks_per_node, capfd):
    """With one line that names it. The others go on meanwhile. What it then pushes is old, and discarded."""

    def program(comm):
        ps = comm.parameter_server(
            MANY, sync=pc.servers.BSP(patience=2), update=pc.servers.SGD(1.0), name="own", **where
        )
        w = MANY.copy()
        for _ in range(3):
            ps.push_pull(MANY + 1, w, timeout=LIMIT)
        if comm.rank == 2:
            met.wait(LIMIT)
            ps.push_pull(MANY + 1, w, timeout=LIMIT)
            assert ps.last_push == pc.PushInfo(clock=4, version=4, staleness=1, used=False)
            met.wait(LIMIT)
        else:
            ps.push_pull(MANY + 1, w, timeout=LIMIT)
            assert w[0] == -4
            assert [worker.present for worker in ps.server_statistics().workers] == [True, True, False]
            met.wait(LIMIT)
            met.wait(LIMIT)
        ps.push_pull(MANY + 1, w, timeout=LIMIT)
        assert w[0] == -5
        met.wait(LIMIT)
        final = ps.server_statistics()
        met.wait(LIMIT)
        return [worker.pushes for worker in final.workers], [worker.present for worker in final.workers]

    met = threading.Barrier(3)
    outcome = run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=60.0)
    assert outcome == [([5, 5, 5], [True] * 3)] * 3
    lines = [line for line in capfd.readouterr().err.splitlines() if "stopped pushing" in line]
    assert len(lines) == 1, lines
    assert "parameter server 'own': rank 2 has stopped pushing while others wait" in lines[0]


def test_what_is_waited_for_is_in_the_flight_record():
    finished = threading.Event()

    def program(comm):
        ps = comm.parameter_server(ONE, update=pc.servers.SGD(1.0), servers="node", name="own")
        if comm.rank == 0:
            waits = threading.Thread(target=ps.push_pull, args=(ONE, ONE.copy()), kwargs={"timeout": LIMIT})
            waits.start()
            while "wait" not in comm.flight_record()["collectives"][-1]:
                time.sleep(0.01)
            assert "pull after push 1" in str(comm.flight_record()["collectives"][-1])
            with pytest.raises(RuntimeError, match="'own': called while another thread is in a call of it"):
                ps.push(ONE)
            finished.set()
            waits.join(LIMIT)
        else:
            assert finished.wait(LIMIT)
            ps.push_pull(ONE, ONE.copy(), timeout=LIMIT)

    run_ranks(2, program)


# --- Counts


@where
def test_statistics(where):
    """Under BSP, of a worker that is 50 ms late each time."""

    def program(comm):
        with comm.parameter_server(MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), **where) as ps:
            w = MANY.copy()
            for _ in range(4):
                time.sleep(0.05 * (comm.rank == 2))
                ps.push_pull(MANY, w, timeout=LIMIT)
            met.wait(LIMIT)
            counted = ps.server_statistics(timeout=LIMIT)
            met.wait(LIMIT)
            return counted

    met = threading.Barrier(3)
    for counted in run_ranks(3, program):
        assert (counted.version, counted.superstep, counted.staleness[0]) == (4, 4, 12)
        assert [worker.rank for worker in counted.workers] == [0, 1, 2]
        assert [(worker.pushes, worker.discarded, worker.given_up) for worker in counted.workers] == [(4, 0, 0)] * 3
        early, _, late = (worker.waiting for worker in counted.workers)
        assert early > 0.1
        assert early > late >= 0
        assert len(counted.supersteps) == 4
        assert all(length > 0.04 for length, _ in counted.supersteps[1:])
        assert all(slack > 0 for _, slack in counted.supersteps)
        assert max(slack for _, slack in counted.supersteps) > 0.03


@where
def test_old_gradients_are_counted_and_discarded(where):
    """Ringmaster(2): a gradient of weights that two updates have changed since does not count."""
    met = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.Ringmaster(2), update=pc.servers.SGD(1.0), **where)
        w = MANY.copy()
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        if comm.rank == 0:
            for _ in range(2):
                ps.push_pull(MANY + 1, w, timeout=LIMIT)
        met.wait(LIMIT)
        if comm.rank == 1:
            ps.push_pull(MANY + 1, w, timeout=LIMIT)
            assert ps.last_push == pc.PushInfo(clock=1, version=2, staleness=2, used=False)
            assert w[0] == -2
        met.wait(LIMIT)
        counted = ps.server_statistics(timeout=LIMIT)
        met.wait(LIMIT)
        return counted.staleness[:3], [worker.discarded for worker in counted.workers], counted.version

    assert run_ranks(3, program) == [((2, 0, 1), [0, 1, 0], 2)] * 3


def test_a_function_that_raises_is_heard_of_and_others_go_on():
    def update(weights, gradient):
        if gradient[0] == 1:
            raise KeyError("of the function")
        weights += gradient

    def program(comm):
        ps = comm.parameter_server(np.zeros(3), sync=pc.servers.ASP(), update=update, servers="node")
        w = np.zeros(3)
        if comm.rank == 1:
            with pytest.raises(KeyError, match="of the function"):
                ps.push_pull(np.ones(3), w)
        ps.push_pull(np.full(3, 2.0), w, timeout=LIMIT)
        met.wait(LIMIT)
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.tolist()

    met = threading.Barrier(2)
    assert run_ranks(2, program) == [[4.0, 4.0, 4.0]] * 2
