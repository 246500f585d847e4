"""Communicator and partial allreduce on ranks that are threads of this process."""

import os
import re
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.partial_allreduce.stragglers import Straggler, StragglerWarning
from pycollectives.support.buffers import DTYPE_NAMES
from pycollectives.testing import loopback, run_ranks

SIZES = [1, 2, 3, 4, 5, 7, 8]
LIMIT = 30.0


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "board"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    return request.param


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "policy", [pc.Full(), pc.Solo(), pc.Majority(), pc.policies.AnyOf(1), pc.policies.AllOf(1), pc.Quorum(1)], ids=repr
)
def test_what_was_contributed_is_delivered_once(size, policy):
    calls = 5

    def program(comm):
        total = np.zeros(2, np.int64)
        with comm.partial_allreduce(count=2, dtype="int64", policy=policy, missed="sum") as ar:
            for _ in range(calls):
                result, info = ar.allreduce(np.array([10**comm.rank, 1]), timeout=LIMIT)
                total += result
                assert list(info.contributors) == sorted(set(info.contributors))
            ar.flush(timeout=LIMIT)
            return (total + ar.result).tolist()

    everything = [calls * sum(10**rank for rank in range(size)), calls * size]
    assert run_ranks(size, program) == [everything] * size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("SUM", lambda n: n * (n + 1) / 2),
        ("PROD", lambda n: float(np.prod(np.arange(1.0, n + 1)))),
        ("MIN", lambda n: 1),
        ("MAX", lambda n: n),
        (pc.AVG, lambda n: (n + 1) / 2),
    ],
)
def test_operations(size, op, expected):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(()), op=op, policy=pc.Full())
        result, info = ar.allreduce(np.float64(comm.rank + 1), timeout=LIMIT)
        assert info.contributors == tuple(range(size))
        assert info.active == size
        assert info.included
        return float(result)

    assert run_ranks(size, program) == [expected(size)] * size


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_an_average_of_integers_fits_though_their_sum_does_not(dtype):
    largest = np.iinfo(dtype).max if "64" not in dtype else 2**60

    def program(comm):
        ar = comm.partial_allreduce(count=2, dtype=dtype, op=pc.AVG, policy=pc.Full(), missed="sum")
        result, _ = ar.allreduce(np.array([largest, 7], dtype), timeout=LIMIT)
        return result.tolist()

    assert run_ranks(5, program) == [[largest, 7]] * 5


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_types(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")

    def program(comm):
        op = "LOR" if dtype == "bool" else "SUM"
        ar = comm.partial_allreduce(count=3, dtype=dtype, op=op, policy=pc.Full())
        result, _ = ar.allreduce(np.arange(3).astype(ar.dtype), timeout=LIMIT)
        assert result.dtype == ar.dtype
        assert result.shape == (3,)
        assert not result.flags.writeable
        return result.astype(complex).tolist()

    assert run_ranks(3, program) == [[0, 1, 1] if dtype == "bool" else [0, 3, 6]] * 3


def test_count_zero():
    def program(comm):
        result, _ = comm.partial_allreduce(count=0, dtype="f8", policy=pc.Full()).allreduce(np.empty(0), timeout=LIMIT)
        return result.shape

    assert run_ranks(3, program) == [(0,)] * 3


def test_contributions_may_be_overwritten_and_results_stay():
    def program(comm):
        ar = comm.partial_allreduce(count=1000, dtype="f8", policy=pc.Full())
        x = np.ones(1000)
        first = ar.contribute(x)
        x[:] = np.nan
        first.wait(timeout=LIMIT)
        result = ar.result
        assert (result == comm.size).all()
        return True

    assert all(run_ranks(4, program))


def test_no_result_before_the_first_round():
    (comm,) = loopback(1)
    with comm, pytest.raises(RuntimeError):
        _ = comm.partial_allreduce(count=1, dtype="f8", policy="solo").result


def test_ranks_that_differ_all_hear_of_it_and_go_on():
    def program(comm):
        with pytest.raises(pc.MismatchError, match="count: 3 on ranks 0, 2, 4 on rank 1"):
            comm.partial_allreduce(count=4 if comm.rank == 1 else 3, dtype="f8", policy="solo")
        result, _ = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full()).allreduce(np.ones(1), timeout=LIMIT)
        return result[0]

    assert run_ranks(3, program) == [3.0] * 3


def test_a_mistake_of_one_rank():
    def program(comm):
        error, message = (
            (ValueError, "late: expected") if comm.rank == 1 else (pc.MismatchError, "refused on rank 1: ValueError")
        )
        with pytest.raises(error, match=message) as caught:
            comm.partial_allreduce(count=3, dtype="f8", late="often" if comm.rank == 1 else "drop", policy="solo")
        return type(caught.value)

    assert run_ranks(3, program) == [pc.MismatchError, ValueError, pc.MismatchError]


def test_a_rank_that_creates_nothing():
    """The rank that waited in vain is told so; both can still leave."""
    first, second = loopback(2, timeout=0.3)
    with pytest.raises(pc.StallError, match="1"):
        first.partial_allreduce(count=3, dtype="f8", policy="solo")
    first.abort()
    second.abort()


@pytest.mark.parametrize("check", [False, True])
def test_a_stalled_round_names_the_missing_rank(check):
    entered = threading.Barrier(2)

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name="gradients")
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"gradients.*1.*[^.]\. The data is contributed: do not contribute"):
                ar.allreduce(np.ones(1), timeout=0.1)
        entered.wait(LIMIT)
        comm.abort()

    run_ranks(2, program, check=check)


def test_an_exception_on_one_rank_warns_and_stops_nobody():
    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="f8", policy="solo")
        if comm.rank == 0:
            raise KeyError
        for _ in range(20):
            ar.allreduce(np.ones(1), timeout=LIMIT)
        return True

    with pytest.warns(RuntimeWarning, match="ended with KeyError: closed without flush, 0 contributions"):
        outcomes = run_ranks(3, program, return_exceptions=True)
    assert isinstance(outcomes[0], KeyError)
    assert outcomes[1:] == [True, True]


def test_different_numbers_of_calls():
    def program(comm):
        with comm.partial_allreduce(count=1, dtype="int64", missed="sum", policy=pc.Quorum(2)) as ar:
            total = 0
            for _ in range(3 * comm.rank):
                total += int(ar.allreduce(np.ones(1, "int64"), timeout=LIMIT)[0][0])
            ar.flush(timeout=LIMIT)
            return total + int(ar.result[0])

    assert run_ranks(4, program) == [3 * (0 + 1 + 2 + 3)] * 4


def test_closed_collectives():
    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="f8", policy="solo")
        ar.leave()
        ar.leave()
        assert ar.closed
        for call in (lambda: ar.contribute(np.ones(1)), lambda: ar.allreduce(np.ones(1)), ar.flush):
            with pytest.raises(pc.ClosedError):
                call()

    run_ranks(2, program)


def test_closed_communicators():
    def program(comm):
        comm.close()
        comm.close()
        with pytest.raises(pc.ClosedError):
            comm.partial_allreduce(count=1, dtype="f8", policy="solo")
        with pytest.raises(pc.ClosedError), comm:
            pass
        return repr(comm)

    comms = loopback(2)
    threads = [threading.Thread(target=program, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert [repr(comm) for comm in comms] == [
        "<Communicator rank 0 of 2, closed>",
        "<Communicator rank 1 of 2, closed>",
    ]


def test_leaving_the_communicator_waits_for_who_has_not_closed():
    comms = loopback(2, timeout=0.2)
    with pytest.raises(pc.StallError, match="1"):
        comms[0].close()
    comms[1].abort()
    comms[0].close(timeout=LIMIT)


def test_what_a_call_was_promised_is_given_after_closing_though_rounds_have_gone_by():
    """Rank 0 contributes, closes, and waits only when its round has left the history."""
    gone_by = threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full(), missed="sum", history=2)
        first = ar.contribute(np.array([10**comm.rank]))
        if comm.rank == 0:
            ar.leave()
            assert gone_by.wait(LIMIT)
            first.wait(timeout=LIMIT)
            return ar.result.tolist()
        first.wait(timeout=LIMIT)
        for _ in range(5):
            ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)
        ar.leave()
        gone_by.set()
        return None

    assert run_ranks(2, program)[0] == [11]


def test_a_dropped_collective_is_served_and_closed():
    def program(comm):
        comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full()).contribute(np.ones(1))

    run_ranks(3, program)


def test_wait_all_and_wait_any():
    def program(comm):
        collectives = [comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full()) for _ in range(3)]
        rounds = [ar.contribute(np.ones(1)) for ar in collectives]
        assert pc.wait_any(rounds, timeout=LIMIT) in range(3)
        infos = pc.wait_all(rounds, timeout=LIMIT)
        assert all(isinstance(handle, pc.Request) for handle in rounds)
        return [info.round for info in infos]

    assert run_ranks(3, program) == [[0, 0, 0]] * 3


@pytest.mark.parametrize("wait", [pc.PartialRequest.Waitall, pc.wait_all], ids=["Waitall", "wait_all"])
def test_waiting_for_all_leaves_inactive_requests_out(wait):
    """As in MPI_Waitall; of one that was completed before, its information is kept."""
    (comm,) = loopback(1)
    never, tested, started = (pc.Allreduce_init(np.ones(1), np.zeros(1), comm=comm) for _ in range(3))
    tested.Start()
    while not tested.Test():
        pass
    started.Start()
    infos = wait([never, tested, started])
    assert infos[0] is None
    assert [info.round for info in infos[1:]] == [0, 0]
    assert wait([never]) == [None]
    comm.close()


def test_there_is_no_mpi_communicator_under_it():
    (comm,) = loopback(1)
    with comm, pytest.raises(RuntimeError, match="no MPI communicator"):
        _ = comm.mpi_comm


def test_requests():
    def program(comm):
        send, recv = np.full(2, comm.rank + 1.0), np.zeros(2)
        request = pc.Allreduce_init(send, recv, "SUM", comm, policy=pc.Full())
        with pytest.raises(RuntimeError, match="never started"):
            request.Wait()
        for _ in range(3):
            request.Start()
            with pytest.raises(RuntimeError, match="active"):
                request.Start()
            assert request.active
            info = request.Wait(timeout=LIMIT)
            assert not request.active
            assert request.Test()
            assert request.Wait() == info
        request.Free()
        request.Free()
        return recv.tolist()

    assert run_ranks(3, program) == [[6.0, 6.0]] * 3


def test_a_request_whose_receive_buffer_is_wrong_on_one_rank():
    def program(comm):
        recv = np.zeros(3 if comm.rank == 1 else 2)
        with pytest.raises(ValueError if comm.rank == 1 else pc.MismatchError, match="recvbuf: expected shape"):
            pc.Allreduce_init(np.zeros(2), recv, comm=comm)

    run_ranks(3, program)


def test_run_ranks_says_where_a_rank_hangs():
    go = threading.Event()

    def program(comm):
        if comm.rank == 1:
            go.wait()

    with pytest.raises(TimeoutError, match=r"rank 1 is at(.|\n)*go\.wait"):
        run_ranks(2, program, timeout=0.5)
    go.set()


def test_run_ranks_raises_the_lowest_rank_s_exception():
    def program(comm):
        raise ValueError(f"of {comm.rank}")

    with pytest.raises(ValueError, match="of 0"):
        run_ranks(2, program)


def test_size_zero():
    with pytest.raises(ValueError, match="size: expected at least 1"):
        loopback(0)


@pytest.mark.parametrize("call", ["contribute", "allreduce", "flush"])
def test_one_thread_at_a_time(call):
    """While one thread waits in a call another's is refused at once, and the collective goes on."""
    waiting, refused = threading.Event(), threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(count=2, dtype="f8", name="sum", policy="solo")
        ar.allreduce(np.ones(2), timeout=LIMIT)
        if comm.rank == 1:
            assert refused.wait(LIMIT)
            ar.flush(timeout=LIMIT)
            return None
        flushing = threading.Thread(target=lambda: (waiting.set(), ar.flush(timeout=LIMIT)))
        flushing.start()
        assert waiting.wait(LIMIT)
        error = None
        while error is None and flushing.is_alive():  # until the thread is inside flush
            try:
                if call == "flush":
                    ar.flush(timeout=0.0)
                else:
                    getattr(ar, call)(np.ones(2))
            except pc.StallError:
                pass
            except RuntimeError as caught:
                error = str(caught)
        refused.set()
        flushing.join(LIMIT)
        return error

    error, _ = run_ranks(2, program)
    assert "sum: called while another thread is in a call of this collective" in error


def test_a_fork_is_told_that_the_communicator_is_its_parent_s():
    """And the parent goes on undisturbed, though its progress thread does not exist in the fork."""
    (comm,) = loopback(1)
    with comm:
        ar = comm.partial_allreduce(count=1, dtype="int64", missed="sum", policy="solo")
        ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)
        handle = ar.contribute(np.ones(1, np.int64))
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (
                lambda: ar.contribute(np.ones(1, np.int64)),
                ar.flush,
                ar.close,
                handle.test,
                comm.close,
                lambda: comm.partial_allreduce(count=1, dtype="int64", policy="solo"),
            ):
                try:
                    call()
                except pc.ClosedError as error:
                    refused += "this process is a fork" in str(error)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
        handle.wait(timeout=LIMIT)
        assert ar.flush(timeout=LIMIT).contributors in ((), (0,))


def test_synchronous_ranks_with_equal_numbers_of_calls_wait_for_no_further_one():
    """Data that came too late for one round is there for the next: its rank need not arrive again."""

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
        if comm.rank == 1:
            time.sleep(0.05)
        for handle in [ar.contribute(np.ones(1, np.int64)) for _ in range(2)]:
            handle.wait(timeout=LIMIT)
        together.wait(LIMIT)  # nobody calls again before all are here
        return True

    together = threading.Barrier(2)
    assert run_ranks(2, program) == [True, True]


@pytest.mark.parametrize("share", [None, "0.5"])
def test_stragglers(share, monkeypatch, caplog):
    """Rank 2 has data in one of the first rounds only. In the first round another rank may be absent."""
    if share is not None:
        monkeypatch.setenv("PYC_STRAGGLER_WARNING", share)
    met = threading.Barrier(3)

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(4), policy="quorum:2")
        ar.allreduce(np.ones(4), timeout=30) if comm.rank != 2 else ar.contribute(np.ones(4))
        met.wait(30)
        if comm.rank == 2:
            met.wait(30)
        else:
            for _ in range(5):
                ar.allreduce(np.ones(4), timeout=30)
            met.wait(30)
        counted = ar.statistics()
        ar.flush(timeout=30)
        return counted, ar.statistics().stragglers

    *fast, (counted_by_2, _) = run_ranks(3, program)
    assert counted_by_2.stragglers == ()
    for counted, after_flush in fast:
        late, *others = counted.stragglers
        assert late.rank == 2
        assert 4 <= late.absent <= 6
        assert sum(other.absent for other in others) <= 1
        assert late.longest >= late.absent - 1
        assert after_flush == counted.stragglers
    warnings = [record.getMessage() for record in caplog.records if "had no data" in record.getMessage()]
    if share is None:
        assert warnings == []
    else:
        (line,) = warnings
        assert re.search(r"rank 2 had no data in [456] of [67] rounds \(\d+ %\), at most [456] in a row\.$", line)


def test_a_straggler_warning_is_of_the_rounds_since_the_one_before(caplog):
    warning = StragglerWarning(0.5)
    warning.check("a", 10, [Straggler(1, 8, 8)])
    warning.check("a", 10, [Straggler(1, 8, 8)])
    warning.check("a", 20, [Straggler(1, 12, 8), Straggler(2, 6, 6)])
    assert [record.getMessage() for record in caplog.records] == [
        "pycollectives: a: rank 1 had no data in 8 of 10 rounds (80 %), at most 8 in a row.",
        "pycollectives: a: rank 2 had no data in 6 of 10 rounds (60 %), at most 6 in a row.",
    ]
