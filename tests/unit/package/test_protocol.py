"""Every service follows one protocol: each row of it, for each service, on 1 to 5 ranks in three shapes."""

import dataclasses
import inspect
import threading
import time
import warnings

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.collective import Collective, Statistics
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
COUNT = 6
SERVICES = {
    "partial_allreduce": lambda comm, **options: comm.partial_allreduce(np.zeros((2, 3)), **options),
    "partial_reduce": lambda comm, **options: comm.partial_reduce(np.zeros((2, 3)), **options),
    "pairwise_averaging": lambda comm, **options: comm.pairwise_averaging(np.zeros((2, 3)), topology="ring", **options),
    "neighbor_averaging": lambda comm, **options: comm.neighbor_averaging(np.zeros((2, 3)), **options),
    "push_sum": lambda comm, **options: comm.push_sum(np.zeros((2, 3)), topology="ring", **options),
    "hop": lambda comm, **options: comm.hop(np.zeros((2, 3)), topology="ring", **options),
    "update_queue": lambda comm, **options: comm.update_queue(np.zeros((2, 3)), owner=0, **options),
    "parameter_server": lambda comm, **options: comm.parameter_server(
        np.zeros((2, 3)), update=pc.servers.SGD(1.0), servers="node", **options
    ),
}
WITHOUT_ARRAYS = {"counter": lambda comm, **options: comm.counter(**options)}
IN_TWO = {"token_queue": lambda comm, **options: comm.token_queue(owner=0, taker=1, **options)}
ALL = SERVICES | WITHOUT_ARRAYS | IN_TWO
SIZES = (1, 2, 3, 5)
SHAPES = (1, 2, "all")

every_service = pytest.mark.parametrize("service", ALL)
every_shape = pytest.mark.parametrize("ranks_per_node", SHAPES)


def sizes_of(service):
    return [size for size in SIZES if size > 1 or service not in IN_TWO]


def on_all(service, program, ranks_per_node, **options):
    """Run it on each number of ranks."""
    for size in sizes_of(service):
        run_ranks(size, program, ranks_per_node=ranks_per_node, **options)


@every_shape
@every_service
def test_what_is_known_of_one(service, ranks_per_node):
    def program(comm):
        made = ALL[service](comm)
        assert isinstance(made, Collective)
        assert made.name == f"{service}[0]"
        assert made.comm is comm
        assert (made.closed, made.failed) == (False, None)
        if service in SERVICES:
            assert (made.count, made.shape, made.dtype) == (COUNT, (2, 3), np.dtype("float64"))
        counted = made.statistics()
        assert isinstance(counted, Statistics)
        with pytest.raises(dataclasses.FrozenInstanceError):
            counted.waited = 1.0
        assert counted.waited >= 0
        assert counted.memory_bytes > 0 or service in ("partial_reduce", "counter")  # no values
        # Messages of averages that go on in the background take memory, too.
        assert counted.memory_bytes <= comm.statistics().memory_bytes <= made.statistics().memory_bytes
        assert comm.open == (made,)
        assert service in repr(made)
        made.close(timeout=LIMIT)
        assert made.closed
        assert "closed" in repr(made)
        assert comm.open == ()

    on_all(service, program, ranks_per_node)


@every_shape
@every_service
def test_arguments_are_compared_and_a_name_is_one_of_them(service, ranks_per_node):
    def program(comm):
        if comm.size > 1:
            with pytest.raises(pc.MismatchError, match=f"{service}: arguments differ: name: a on rank 0, b on"):
                ALL[service](comm, name="a" if comm.rank == 0 else "b")
        expected = ValueError if comm.rank == 0 else pc.MismatchError
        with pytest.raises(expected, match="name: expected 1 to 200 characters, got 0"):
            ALL[service](comm, name="" if comm.rank == 0 else "x")
        assert ALL[service](comm, name="x").name == "x"

    on_all(service, program, ranks_per_node)


@every_service
def test_an_argument_that_there_is_not(service):
    def program(comm):
        with pytest.raises((TypeError, pc.MismatchError), match="colour"):
            ALL[service](comm, **({"colour": 1} if comm.rank == 0 else {}))

    run_ranks(2, program)


@every_service
def test_creation_has_a_limit(service):
    """A rank that does not come is named; the limit is this call's own."""

    def program(comm):
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                ALL[service](comm, timeout=0.2)
            gave_up.set()
        assert gave_up.wait(LIMIT)
        comm.abort()

    gave_up = threading.Event()
    run_ranks(2, program)


@every_service
def test_limits_are_given_by_name(service):
    (comm, *_) = comms = loopback(2)
    made = run_ranks(comms, lambda comm: ALL[service](comm))[0]
    for member in ("flush", "close"):
        assert inspect.signature(getattr(made, member)).parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(getattr(type(comm), service))
    assert signature.parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "Raises\n------" in inspect.getdoc(getattr(type(comm), service))


@every_service
def test_limits_are_checked(service):
    def program(comm):
        with ALL[service](comm) as made:
            for wrong, error in ((-1, ValueError), ("1", TypeError)):
                for call in (made.flush, made.close):
                    with pytest.raises(error, match="timeout: expected seconds"):
                        call(timeout=wrong)

    run_ranks(2, program)


@every_shape
@every_service
def test_flushing_closing_and_leaving_again(service, ranks_per_node):
    def program(comm):
        made = ALL[service](comm)
        made.flush(timeout=LIMIT)
        made.flush(timeout=LIMIT)
        made.close(timeout=LIMIT)
        made.close()
        made.leave()
        assert made.abort() == 0
        assert (made.closed, made.failed) == (True, None)
        with pytest.raises(pc.ClosedError, match=f"'{service}\\[0\\]' is closed"):
            made.flush()

    on_all(service, program, ranks_per_node)


@every_shape
@every_service
def test_a_rank_that_leaves_waits_for_nobody(service, ranks_per_node):
    """And nobody for it: the others flush and close."""

    def program(comm):
        made = ALL[service](comm)
        if comm.rank == 0:
            made.leave()
            assert made.closed
            left.set()
        assert left.wait(LIMIT)
        if comm.rank != 0:
            made.flush(timeout=LIMIT)
            made.close(timeout=LIMIT)

    for size in sizes_of(service):
        left = threading.Event()
        run_ranks(size, program, ranks_per_node=ranks_per_node)


@every_shape
@every_service
def test_a_block_closes_at_its_end(service, ranks_per_node):
    def program(comm):
        with ALL[service](comm) as made:
            assert not made.closed
        assert made.closed

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_all(service, program, ranks_per_node)


@every_service
def test_an_exception_leaves_at_once(service):
    def program(comm):
        made = ALL[service](comm)
        with pytest.raises(KeyError), made:
            raise KeyError
        assert made.closed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that can lose data warns: test_partial.py
        run_ranks(3, program)


@every_service
def test_the_communicator_flushes_leaves_and_closes_all(service):
    def program(comm):
        first, second = (ALL[service](comm) for _ in range(2))
        comm.flush(timeout=LIMIT)
        assert not first.closed
        first.leave()
        assert comm.open == (second,)
        comm.close(timeout=LIMIT)
        assert second.closed

    run_ranks(3, program)


REQUESTS = {
    "partial_allreduce": lambda made: made.contribute(np.ones(COUNT)),
    "neighbor_averaging": lambda made: made.start(np.ones(COUNT)),
    "push_sum": lambda made: made.start(np.ones(COUNT)),
    "parameter_server": lambda made: made.push(np.ones(COUNT)),
}


@every_shape
@pytest.mark.parametrize("service", REQUESTS)
def test_requests(service, ranks_per_node):
    """Of arrays of another shape, with as many elements."""

    def program(comm):
        made = ALL[service](comm)
        request = REQUESTS[service](made)
        assert isinstance(request, pc.Request)
        info = request.wait(timeout=LIMIT)
        assert info is not None
        assert request.done
        assert request.test()
        assert pc.wait_all([request], timeout=LIMIT) == [info]
        assert pc.wait_any([request], timeout=LIMIT) == 0
        made.close(timeout=LIMIT)

    on_all(service, program, ranks_per_node)


@every_shape
@pytest.mark.parametrize("service", REQUESTS)
def test_a_dropped_request_loses_nothing(service, ranks_per_node):
    """The next call goes on once it is done."""

    def program(comm):
        made = ALL[service](comm)
        for _ in range(3):
            request = REQUESTS[service](made)
            deadline = time.monotonic() + LIMIT
            while not request.done and time.monotonic() < deadline:
                time.sleep(1e-3)
            del request
        REQUESTS[service](made).wait(timeout=LIMIT)
        made.close(timeout=LIMIT)

    on_all(service, program, ranks_per_node)


def full(comm):
    return comm.partial_allreduce(np.zeros(COUNT), policy="full")


@pytest.mark.parametrize("service", REQUESTS)
def test_a_call_that_waits_counts_its_time(service):
    """Rank 1 comes 0.2 s late."""

    def program(comm):
        made = full(comm) if service == "partial_allreduce" else ALL[service](comm)
        if comm.rank == 1:
            time.sleep(0.2)
        REQUESTS[service](made).wait(timeout=LIMIT)
        waited = made.statistics().waited
        made.close(timeout=LIMIT)
        return waited

    waited = run_ranks(2, program)
    assert 0.1 < waited[0] < LIMIT


def test_what_has_failed_says_so():
    """A partial reduce whose request was given up: its calls raise what `failed` is."""

    def program(comm):
        pr = comm.partial_reduce(np.zeros(COUNT), groups="static:2")
        if comm.rank == 0:
            pr.average(np.zeros(COUNT), timeout=LIMIT)  # of the first step, alone
            with pytest.raises(pc.StallError, match="abort"):
                pr.average(np.zeros(COUNT), timeout=0.2)
            assert isinstance(pr.failed, pc.ClosedError)
            with pytest.raises(pc.ClosedError, match="an earlier average was given up"):
                pr.average(np.zeros(COUNT))
            gave_up.set()
        assert gave_up.wait(LIMIT)
        pr.abort()
        assert pr.failed is None

    gave_up = threading.Event()
    run_ranks(2, program)


def test_a_push_pull_that_stalled_says_how_to_continue_and_has_its_record():
    """The server has the push; rank 1 does not come."""

    def program(comm):
        ps = ALL["parameter_server"](comm)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"[^.]\. The server has received the push: call pull") as raised:
                ps.push_pull(np.ones(COUNT), np.ones(COUNT), timeout=0.2)
            assert raised.value.record is not None
            stalled.set()
        assert stalled.wait(LIMIT)
        ps.leave()

    stalled = threading.Event()
    run_ranks(2, program)


@pytest.mark.parametrize(("policy", "discarded"), [("full", 0), ("quorum:2", 1)])
def test_a_request_does_not_wait_after_abort(policy, discarded):
    """In a full allreduce the round has begun: rank 1 gets the contribution, although rank 0 gets no result."""

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT), policy=policy)
        if comm.rank == 0:
            request = ar.contribute(np.ones(COUNT))
            assert ar.abort() == discarded
            for look in (request.test, lambda: request.wait(timeout=LIMIT)):
                with pytest.raises(pc.ClosedError, match=r"abort\(\) ended the call"):
                    look()
            aborted.set()
        assert aborted.wait(LIMIT)
        ar.leave()

    aborted = threading.Event()
    run_ranks(2, program)


def test_an_average_goes_on_with_the_memory_that_it_began_with():
    def program(comm):
        na = comm.neighbor_averaging(np.zeros(COUNT))
        values, others = np.full(COUNT, comm.rank), np.zeros(COUNT)
        values = values.astype(float)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                na.average(values, timeout=0.2)
            with pytest.raises(RuntimeError, match="step 0 has begun with other memory"):
                na.average(others)
            stalled.set()
        assert stalled.wait(LIMIT)
        assert na.average(values, timeout=LIMIT).step == 0
        assert values.tolist() == [0.5] * COUNT
        na.close(timeout=LIMIT)

    stalled = threading.Event()
    run_ranks(2, program)


@pytest.mark.parametrize("wait", [pc.wait_all, pc.wait_any])
def test_what_is_no_request_is_told(wait):
    (comm,) = loopback(1)
    request = comm.partial_allreduce(np.zeros(1)).contribute(np.ones(1))
    with pytest.raises(TypeError, match=f"{wait.__name__}: expected requests, got NoneType"):
        wait([None])
    with pytest.raises(TypeError, match=f"{wait.__name__}: expected a list of requests, got Round"):
        wait(request)
    wait(each for each in [request])


def is_function(member):
    return inspect.isfunction(member) or inspect.ismethod(member)  # ... of a class: a class method


def every_method():
    for name in pc.__all__:
        made = getattr(pc, name)
        yield from [(name, made)] if inspect.isfunction(made) else inspect.getmembers(made, is_function)


def test_every_limit_is_given_by_name():
    kinds = {
        name: inspect.signature(function).parameters["timeout"].kind
        for name, function in every_method()
        if not name.startswith("_") and "timeout" in inspect.signature(function).parameters
    }
    assert len(kinds) > 10
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("service", REQUESTS)
def test_a_wait_goes_on_after_its_limit(service):
    """Rank 1 is late."""

    def program(comm):
        made = full(comm) if service == "partial_allreduce" else ALL[service](comm)
        if comm.rank == 1:
            assert stalled.wait(LIMIT)
        request = REQUESTS[service](made)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                request.wait(timeout=0.2)
            assert not request.done
            stalled.set()
        request.wait(timeout=LIMIT)
        made.close(timeout=LIMIT)

    stalled = threading.Event()
    run_ranks(2, program)


def test_a_flush_goes_on_after_its_limit():
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(1))
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                ar.close(timeout=0.2)
            assert not ar.closed
            stalled.set()
        assert stalled.wait(LIMIT)
        ar.close(timeout=LIMIT)

    stalled = threading.Event()
    run_ranks(2, program)


def test_few_names_are_public():
    assert len(pc.__all__) <= 40
    for name in pc.__all__:
        assert getattr(pc, name) is not None
