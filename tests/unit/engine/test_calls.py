"""What every step of a training calls, which is written against Python's C API: arguments, errors, references."""

import gc
import os
import sys
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0


@pytest.fixture(autouse=True, params=[1, "all"], ids=["flat", "board"])
def ranks_per_node(request, monkeypatch):
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    return request.param


def with_collective(action, size=1, like=None, **options):
    """What `action(ar)` returns on rank 0."""

    def program(comm):
        with comm.partial_allreduce(np.zeros(3) if like is None else like, **options) as ar:
            return action(ar)

    return run_ranks(size, program)[0]


def test_steady_state_keeps_no_references():
    x, out, longer = np.ones(3), np.empty(3), np.ones(4)  # np.ones leaks a reference to the dtype

    def action(ar):
        objects = (x, out, x.dtype, None, True, ar._collective, pc.RoundInfo, type(ar._collective.contribute(x)))

        def calls(times):
            for _ in range(times):
                ar.contribute(x).wait()
                ar.contribute(x).wait(timeout=LIMIT)
                round_ = ar.contribute(x)
                while not round_.test():
                    pass
                ar._collective.contribute_and_wait(x, timeout=LIMIT)
                ar.allreduce(x)
                ar.allreduce(x, out, timeout=LIMIT)
                repr(ar.result)
                repr(round_.wait())
                for wrong in ((), (x, 1, 2), (longer,), ("x",)):
                    with pytest.raises((TypeError, ValueError)):
                        ar.allreduce(*wrong)

        calls(100)
        gc.collect()
        before = [sys.getrefcount(thing) for thing in objects]
        blocks = sys.getallocatedblocks()
        calls(1000)
        gc.collect()
        after = [sys.getrefcount(thing) for thing in objects]
        return before, after, sys.getallocatedblocks() - blocks

    before, after, blocks = with_collective(action)
    growth = np.subtract(after, before)
    assert np.abs(growth[:2]).max() < 50, growth
    assert growth.max() < 50, growth  # what all tests share may be let go of by garbage of theirs
    assert blocks < 500


@pytest.mark.skipif("san.so" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer holds on to what is freed")
def test_a_hundred_thousand_calls_take_no_more_memory():
    x = np.ones(3)

    def action(ar):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        for _ in range(10_000):
            ar.contribute(x).wait()
        before = resident()
        for _ in range(100_000):
            ar.contribute(x).wait().contributors  # noqa: B018
        return resident() - before

    assert with_collective(action) < 4 << 20


def test_handles_live_longer_than_anything_else():
    def action(ar):
        rounds = [ar.contribute(np.full(3, float(n))) for n in range(20)]
        infos = [round_.wait(timeout=LIMIT) for round_ in rounds]
        results = [ar.allreduce(np.full(3, float(n)), timeout=LIMIT)[0] for n in range(20)]
        return rounds, infos, results

    rounds, infos, results = with_collective(action)
    gc.collect()
    assert [info.contributors for info in infos] == [(0,)] * 20
    assert [int(result[0]) for result in results] == list(range(20))
    assert [round_.wait().round for round_ in rounds] == [info.round for info in infos]
    assert repr(infos[-1]) == (
        f"RoundInfo(round={infos[-1].round}, initiator=0, included=True, contributors=(0,), active=1, "
        f"staleness={infos[-1].staleness}, missed={infos[-1].missed}, overrun={infos[-1].overrun})"
    )


def test_wrong_arguments():
    x = np.ones(3)

    def action(ar):
        core = ar._collective
        round_ = core.contribute(x)
        round_.wait(timeout=LIMIT)
        rounds = core.rounds
        for call, error, message in (
            (lambda: core.contribute(), TypeError, r"contribute\(\) needs the argument 'x'"),
            (lambda: core.contribute(x, x), TypeError, r"contribute\(\) takes at most 1"),
            (lambda: core.contribute(y=x), TypeError, "unexpected argument 'y'"),
            (lambda: core.contribute(x, x=x), TypeError, "two values for 'x'"),
            (lambda: core.contribute(x, stream=1), ValueError, "stream: expected None, as this collective is on"),
            (lambda: core.allreduce(x, None, 1.0), TypeError, r"allreduce\(\) takes at most 2"),
            (lambda: core.contribute_and_wait(), TypeError, "needs the argument 'x'"),
            (lambda: core.contribute_and_wait(x, timeout=-1), ValueError, "timeout: expected seconds >= 0"),
            (lambda: core.contribute_and_wait(x, timeout="1"), TypeError, "timeout: expected seconds"),
            (lambda: core.allreduce(out=x), TypeError, "needs the argument 'x'"),
            (lambda: core.allreduce(x, timeout=float("nan")), ValueError, "timeout: expected seconds >= 0"),
            (lambda: core.allreduce(x, np.empty(4)), ValueError, "expected"),
            (lambda: core.allreduce(x, np.empty(3, "f4")), TypeError, "expected"),
            (lambda: core.allreduce(x, np.empty(6)[::2]), BufferError, "contiguous"),
            (lambda: core.allreduce(x, np.broadcast_to(1.0, 3)), BufferError, "contiguous|read-only"),
            (lambda: core.allreduce(np.ones(2)), ValueError, "expected"),
            (lambda: round_.wait(1), TypeError, r"wait\(\) takes at most 0"),
            (lambda: round_.wait(limit=1), TypeError, "unexpected argument 'limit'"),
            (lambda: round_.wait(timeout=-1), ValueError, "timeout: expected seconds >= 0"),
            (lambda: round_.test(1), TypeError, "no arguments"),
            (lambda: type(round_)(), TypeError, "cannot create"),
            (lambda: pc.RoundInfo(), TypeError, "cannot create"),
        ):
            with pytest.raises(error, match=message):
                call()
        assert core.rounds == rounds  # nothing was sent
        assert core.contribute(x=x, stream=None).wait(timeout=None).round == rounds

    with_collective(action)


def test_where_a_result_is_written():
    def action(ar):
        plain, flat = np.empty((2, 2)), np.empty(4)
        result, info = ar.allreduce(np.arange(4.0).reshape(2, 2), plain)
        assert result is plain
        assert plain.tolist() == [[0, 1], [2, 3]]
        assert info.contributors == (0,)
        result, _ = ar.allreduce(np.ones((2, 2)), out=flat, timeout=LIMIT)
        assert result.shape == (2, 2)
        assert np.shares_memory(result, flat)
        assert flat.tolist() == [1, 1, 1, 1]
        into = np.full((2, 2), 5.0)
        assert ar.allreduce(into, into)[0].tolist() == [[5, 5], [5, 5]]

    with_collective(action, like=np.zeros((2, 2)))


@pytest.mark.parametrize("dtype", ["float16", "int32", "float64"])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 100])
def test_every_way_to_a_result_gives_the_same(dtype, count):
    x = (np.arange(count) % 5).astype(dtype)

    def action(ar):
        out = np.empty_like(x)
        np.testing.assert_array_equal(ar.allreduce(x)[0], x)
        np.testing.assert_array_equal(ar.allreduce(x, out)[0], x)
        ar.contribute(x).wait()
        np.testing.assert_array_equal(ar.result, x)
        assert not ar.result.flags.writeable

    with_collective(action, like=x)


def test_closed():
    def action(ar):
        ar.leave()
        for call in (ar.contribute, ar.allreduce, ar._collective.contribute_and_wait):
            with pytest.raises(pc.ClosedError):
                call(np.ones(3))
        with pytest.raises(RuntimeError, match="no result yet"):
            ar.result  # noqa: B018

    with_collective(action)


def test_a_late_call_has_its_result_at_once_unless_earlier_ones_come_first():
    x, done = np.ones(1), [threading.Event() for _ in range(3)]

    def program(comm):
        with comm.partial_allreduce(x, policy=pc.Solo(), late="drop", missed="latest") as ar:
            if comm.rank == 1:
                for value in (1.0, 2.0):
                    ar.allreduce(np.array([value]), timeout=LIMIT)
                done[0].set()
                assert done[1].wait(LIMIT)
                return None
            assert done[0].wait(LIMIT)
            while ar.rounds < 2:  # rank 1 may have a round's result before rank 0 has
                time.sleep(1e-3)
            late = ar.contribute(x)
            assert late.late
            info = late.wait(timeout=LIMIT)
            seen = ar.result
            done[1].set()
            return info.round, info.missed, float(seen[0]), info.included, info.initiator

    assert run_ranks(2, program)[0] == (1, 1, 2.0, False, 1)


def test_a_second_thread_is_refused():
    def program(comm):
        with comm.partial_allreduce(np.zeros(1), policy=pc.Full()) as ar:
            if comm.rank == 0:
                waits = threading.Thread(target=lambda: ar.allreduce(np.ones(1), timeout=LIMIT))
                waits.start()
                while True:
                    try:
                        ar.contribute(np.ones(1))
                    except RuntimeError as error:
                        assert "another thread" in str(error)
                        break
                gate.set()
                waits.join()
            else:
                assert gate.wait(LIMIT)
                ar.allreduce(np.ones(1), timeout=LIMIT)

    gate = threading.Event()
    run_ranks(2, program)
