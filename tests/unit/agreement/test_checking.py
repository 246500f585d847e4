"""`PYC_CHECK=1`: ranks that call different things, or are given different rounds, are told so."""

import json
import threading
import time
import warnings

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.agreement.calls import Call
from pycollectives.agreement.checking import KEPT_ROUNDS, MAX_CALLS, MAX_LEFT, Checks, NoChecks
from pycollectives.support.deadline import Deadline
from pycollectives.support.native import core
from pycollectives.testing import loopback, run_ranks

ONE = np.ones(4)


def on(ranks, function, **options):
    """What the function returns or raises on each rank, with checks; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*closed without flush")  # `run_ranks`, of a rank that raises
        return run_ranks(ranks, function, return_exceptions=True, **{"check": True, "timeout": 20.0, **options})


def texts(outcomes):
    assert all(type(outcome) is pc.MismatchError for outcome in outcomes), outcomes
    assert len({str(outcome) for outcome in outcomes}) == 1
    return str(outcomes[0])


class Corrupted:
    """The engine's collective, one bit of whose result is not as it should be in one round."""

    def __init__(self, collective, number):
        self.collective = collective
        self.number = number
        self.looks = 0

    def __getattr__(self, name):
        return getattr(self.collective, name)

    @property
    def result(self):
        result = self.collective.result.copy()
        if self.looks == self.number:
            result.view(np.uint64)[-1] ^= 1
        self.looks += 1
        return result


def corrupt(ar, number):
    ar._collective._collective = Corrupted(ar._collective._collective, number)


# ---- off


def test_nothing_is_wrapped_when_off():
    (comm,) = loopback(1)
    ar = comm.partial_allreduce(ONE, policy="solo")
    assert type(comm._context.checks) is NoChecks
    assert type(ar._collective) is core.PartialAllreduce
    assert ar.contribute.__self__ is ar._collective
    assert type(ar.contribute(ONE)) is core.Round
    comm.close()


# ---- programs that are right


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("ranks_per_node", ["all", 2, 1])
@pytest.mark.parametrize("missed", ["latest", "sum"])
@pytest.mark.parametrize("policy", [pc.Solo(), pc.Majority(seed=3), pc.Full()], ids=repr)
def test_a_program_that_is_right(policy, missed, ranks_per_node, size):
    def program(comm):
        rng = np.random.default_rng(comm.rank)
        with comm:
            ar = comm.partial_allreduce(ONE, policy=policy, missed=missed)
            total = np.zeros(4)
            for call in range(30):
                handle = ar.contribute(rng.random(4))
                if call % 3:
                    assert isinstance(handle, pc.Request)
                    while not handle.test():
                        time.sleep(0)
                handle.wait(timeout=20.0)
                total += ar.result
                if call % 10 == 9:
                    ar.flush()
            ar.leave()
            other = comm.partial_allreduce(count=2, dtype="i4", policy="full")
            other.allreduce(np.ones(2, "i4"), timeout=20.0)
            assert comm.is_same_on_all_ranks(total * 0)
        return "closed"

    assert on(size, program, ranks_per_node=ranks_per_node) == ["closed"] * size


def test_allreduce_is_noted_too():
    def program(comm):
        with comm.partial_allreduce(ONE, policy="solo") as ar:
            out = np.empty_like(ONE)
            result, info = ar.allreduce(ONE, out, timeout=20.0)
            assert np.shares_memory(result, out)
            assert result.tolist() == ONE.tolist()
            result, _ = ar.allreduce(ONE)
            assert not result.flags.writeable
            ar._collective.contribute_and_wait(ONE, timeout=20.0)
            return info.round, len(ar._collective._rounds)

    assert on(1, program) == [(0, 3)]


def test_a_rank_that_closes_before_the_others_flush():
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        if comm.rank == 0:
            ar.leave()
        else:
            ar.allreduce(ONE, timeout=20.0)
            ar.flush()
            ar.flush()
        comm.close()
        return "closed"

    assert on(3, program) == ["closed"] * 3


def test_a_rank_that_leaves_a_collective_by_an_exception():
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        if comm.rank == 0:
            ar.abort()
        else:
            ar.flush()
        comm.partial_allreduce(ONE, policy="solo").flush()
        comm.close()
        return len(comm._context.checks._left)

    assert on(3, program) == [0] * 3


def test_a_rank_that_leaves_the_communicator_by_an_exception():
    """The others are warned, and go on without it, as they do without checks."""

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        if comm.rank == 0:
            comm.abort()
            return None
        ar.flush()
        rounds = ar.rounds
        comm.close()
        return rounds

    with pytest.warns(RuntimeWarning, match="PYC_CHECK: no more checks on this communicator: .* gave up|left"):
        assert run_ranks(3, program, check=True)[1:] == [1, 1]


def test_a_flush_that_runs_into_its_limit():
    """It is the engine's error, and the communicator is as usable as without checks."""
    late = threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        if comm.rank == 0:
            late.wait(20.0)
        else:
            with pytest.raises(pc.StallError, match="rank 0"):
                ar.flush(timeout=0.05)
            late.set()
        ar.flush()
        comm.partial_allreduce(ONE, policy="solo").allreduce(ONE, timeout=20.0)
        comm.close()
        return "closed"

    with pytest.warns(RuntimeWarning, match="no more checks.*rank 0 did not call it within"):
        assert run_ranks(2, program, check=True) == ["closed"] * 2


def test_threads_may_flush_in_any_order():
    def program(comm):
        collectives = [comm.partial_allreduce(ONE, policy="solo") for _ in range(3)]
        order = collectives[comm.rank :] + collectives[: comm.rank]
        threads = [threading.Thread(target=ar.flush) for ar in order]
        for thread in threads:
            thread.start()
            time.sleep(0.05)  # so that meetings begin with different calls
        for thread in threads:
            thread.join()
        rounds = [ar.rounds for ar in collectives]
        comm.close()
        return rounds

    assert on(3, program) == [[1, 1, 1]] * 3


def test_a_second_thread_in_a_collective_is_refused():
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        watched = ar._collective
        with watched._exclusively(), pytest.raises(RuntimeError, match="another thread is in a call of this"):
            ar.contribute(ONE)
        comm.close()
        return "closed"

    assert on(1, program) == ["closed"]


# ---- different calls


CALLS = {
    "flush A": (lambda comm, a, b: a.flush(), "flush of 'A' (collective 0)"),
    "flush B": (lambda comm, a, b: b.flush(), "flush of 'B' (collective 1)"),
    "close B": (lambda comm, a, b: b.close(), "flush of 'B' (collective 1)"),
    "create": (lambda comm, a, b: comm.partial_allreduce(ONE, policy="solo"), "partial_allreduce"),
    "compare": (lambda comm, a, b: comm.is_same_on_all_ranks(ONE), "is_same_on_all_ranks"),
}


@pytest.mark.parametrize("other", ["flush B", "close B", "create", "compare"])
@pytest.mark.parametrize("ranks_per_node", ["all", 1])
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_different_calls(odd, ranks_per_node, other):
    def program(comm):
        a, b = (comm.partial_allreduce(ONE, name=name, policy="solo") for name in "AB")
        a.flush()
        try:
            CALLS[other if comm.rank == odd else "flush A"][0](comm, a, b)
        finally:
            comm.abort()

    text = texts(on(3, program, ranks_per_node=ranks_per_node))
    others = {0: "ranks 1-2", 1: "ranks 0, 2", 2: "ranks 0-1"}[odd]
    assert text.startswith("PYC_CHECK: ranks make different calls: ")
    assert f"{CALLS[other][1]} on rank {odd}" in text
    assert f"flush of 'A' (collective 0) on {others}" in text
    assert text.endswith("(the last call that all ranks made together: comparison after flush of 'A' (collective 0))")


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.is_same_on_all_ranks(ONE),
        lambda comm: comm.partial_allreduce(ONE, policy="solo"),
        lambda comm: comm.partial_reduce(ONE, groups=pc.groups.StaticGroups(2)),
    ],
    ids=["is_same_on_all_ranks", "partial_allreduce", "partial_reduce"],
)
def test_the_time_limit_is_for_the_meeting_and_the_call_together(call):
    def program(comm):
        begin = time.monotonic()
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                call(comm)
            told.set()
        told.wait(20.0)
        comm.abort()
        return time.monotonic() - begin

    told = threading.Event()
    with pytest.warns(RuntimeWarning, match="no more checks.*rank 1 did not call it within"):
        assert max(run_ranks(loopback(2, check=True, timeout=2.0), program)) < 3.5


def test_leaving_the_communicator_while_others_flush():
    def program(comm):
        ar = comm.partial_allreduce(ONE, name="A", policy="solo")
        ar.leave()
        other = None if comm.rank == 0 else comm
        try:
            comm.close() if other is None else comm.partial_allreduce(ONE, policy="solo")
        finally:
            comm.abort()

    text = texts(on(2, program))
    assert "close of the communicator on rank 0, partial_allreduce on rank 1" in text
    assert "made together: partial_allreduce" in text


def test_different_calls_of_threads_are_told_when_a_limit_has_passed():
    """They may come to make the same calls, so it is no error before."""

    def program(comm):
        a, b = (comm.partial_allreduce(ONE, name=name, policy="solo") for name in "AB")
        stop = threading.Event()
        idle = threading.Thread(target=lambda: (b.contribute(ONE), stop.wait(20.0)))
        idle.start()
        time.sleep(0.1)
        with pytest.raises(pc.StallError):
            (a if comm.rank == 0 else b).flush(timeout=0.3)
        stop.set()
        idle.join()
        both.wait()  # who aborts the communicator closes what the other flushes
        comm.abort()

    both = threading.Barrier(2)
    with pytest.warns(RuntimeWarning) as told:
        run_ranks(2, program, check=True)
    text = "ranks make different calls: flush of 'A' (collective 0) on rank 0, flush of 'B' (collective 1) on rank 1"
    assert any(text in str(warning.message) for warning in told)


# ---- different rounds


@pytest.mark.parametrize("ending", ["flush", "close"])
@pytest.mark.parametrize("odd", [0, 2])
def test_a_round_that_is_not_the_same(odd, ending):
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy=pc.Full(), name="gradients")
        if comm.rank == odd:
            corrupt(ar, 2)
        for _ in range(5):
            ar.contribute(ONE).wait(timeout=20.0)
        try:
            getattr(ar, ending)()
        finally:
            comm.abort()

    text = texts(on(3, program))
    others = "ranks 1-2" if odd == 0 else "ranks 0-1"
    assert "PYC_CHECK: round 2 of 'gradients' (collective 0) is not the same on all ranks: result: bits " in text
    assert f" on rank {odd}" in text
    assert f" on {others}" in text
    assert "initiator" not in text


@pytest.mark.parametrize("field", ["initiator", "contributors", "active"])
def test_what_else_is_compared(field):
    class Info:
        def __init__(self, info):
            self.round, self.missed = info.round, info.missed
            self.initiator, self.contributors, self.active = info.initiator, info.contributors, info.active

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy=pc.Full(), name="A")
        info = Info(ar.contribute(ONE).wait(timeout=20.0))
        if comm.rank == 0:
            setattr(info, field, {"initiator": 7, "contributors": (0,), "active": 1}[field])
        ar._collective._given = 0
        ar._collective.note(info)
        try:
            ar.flush()
        finally:
            comm.abort()

    assert f"round 0 of 'A' (collective 0) is not the same on all ranks: {field}: " in texts(on(2, program))


def test_the_flush_round_is_compared():
    def program(comm):
        ar = comm.partial_allreduce(ONE, name="A", policy="solo")
        if comm.rank == 1:
            corrupt(ar, 0)
        try:
            ar.flush()
        finally:
            comm.abort()

    assert "round 0 of 'A'" in texts(on(2, program))


def test_sums_of_several_rounds_are_not_compared():
    """Ranks that miss different rounds are given different sums."""

    def program(comm):
        ar = comm.partial_allreduce(ONE, missed="sum", policy="solo")
        if comm.rank == 0:
            for _ in range(4):
                ar.allreduce(ONE, timeout=20.0)
            noted = len(ar._collective._rounds)
            turn.wait()
        else:
            turn.wait()
            ar.allreduce(ONE, timeout=20.0)
            noted = len(ar._collective._rounds)
        comm.close()
        return noted

    turn = threading.Barrier(2)
    assert on(2, program) == [4, 0]


# ---- memory and messages


def test_the_engine_of_meetings_is_left_once():
    done = []

    class Engine:
        def abort(self):
            done.append("aborted")

    checks = Checks(Engine(), None)
    checks.leave()
    checks.finish(None)
    assert done == ["aborted", "aborted"]


def test_the_newest_rounds_are_kept():
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        for _ in range(KEPT_ROUNDS + 40):
            ar.allreduce(ONE, timeout=20.0)
        kept = list(ar._collective._rounds)
        ar.flush()
        after = list(ar._collective._rounds)
        comm.close()
        return kept, after

    assert on(1, program) == [(list(range(40, KEPT_ROUNDS + 40)), [])]


def test_a_meeting_fits_into_an_exchange():
    """However many rounds, threads and collectives there are."""
    sent = []

    class Engine:
        def compare(self, mine, *, what, timeout=None):
            sent.append(mine)
            return [mine]

    checks = Checks(Engine(), None)
    for _ in range(10**4):
        checks.register("name" * 5000)
    for number in range(10**4):
        checks.note_left(number)
    for threads in (1, 3, MAX_CALLS + 10):
        notes = {str(10**12 + number): "0123456789ab" for number in range(1000)}
        checks._calls = [Call("comparison after flush", 9000 + n, notes) for n in range(threads)]
        checks._statements(checks._calls[0], checks._calls[:MAX_CALLS], Deadline(None))
        told = json.loads(sent[-1])
        assert len(told["left"]) == MAX_LEFT
        assert len(told["calls"]) == min(threads, MAX_CALLS)
        assert sum(len(call[2]) for call in told["calls"]) in range(KEPT_ROUNDS // 2, KEPT_ROUNDS + 1)
        assert list(told["calls"][0][2])[-1] == str(10**12 + 999)
    assert max(map(len, sent)) <= 4096


def test_many_contributors_are_told_shortly():
    class Info:
        round, missed, initiator, active = 0, 0, 0, 0
        contributors = tuple(range(0, 10000, 2))

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy="solo")
        ar.allreduce(ONE, timeout=20.0)
        watched = ar._collective
        watched._given = 0
        watched.note(Info)
        first = watched._rounds[0]["contributors"]
        watched._given = 0
        Info.contributors = (*Info.contributors[:-1], 9999)
        watched.note(Info)
        comm.abort()
        return len(first) < 300 and first != watched._rounds[0]["contributors"]

    assert on(1, program) == [True]


def test_calls_have_the_signature_of_those_without_checks():
    def program(comm):
        ar = comm.partial_allreduce(ONE, policy=pc.Full())
        ar.contribute(ONE, stream=None).wait(timeout=20)
        result, _ = ar.allreduce(ONE, stream=None)
        with pytest.raises(ValueError, match="stream: expected None, as this collective is on the host, got 5"):
            ar.contribute(ONE, stream=5)
        with pytest.raises(ValueError, match="stream: expected None, as this collective is on the host, got 5"):
            ar.allreduce(ONE, stream=5)
        return result.tolist()

    assert on(2, program) == [(2 * ONE).tolist()] * 2


def test_threads_that_have_ended_are_not_kept():
    checks = Checks(core.Engine.loopback(1)[0], None)
    for _ in range(5):
        thread = threading.Thread(target=checks.note_thread)
        thread.start()
        thread.join()
    del thread
    checks.note_thread()
    assert list(checks._threads) == [threading.current_thread()]
