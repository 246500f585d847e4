"""What becomes of P-Reduces that cannot be performed, on ranks that are threads of this process."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.partial_reduce import arguments
from pycollectives.partial_reduce.explicit import ExplicitGroups
from pycollectives.support.native import core
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
SEED_OF_0_AND_1 = next(
    seed for seed in range(100) if pc.groups.RandomGroups(2, seed=seed).machine([0] * 3).request(0)[0].members == (0, 1)
)
"""With which the first request of rank 0 is answered by this group."""


@pytest.fixture(autouse=True, params=[1, "all"], ids=["flat", "node"])
def ranks_per_node(request, monkeypatch):
    """By messages and in shared memory, for short values too."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    monkeypatch.setattr(arguments, "SHORTEST_ON_BOARD", 0)
    return request.param


def call(comm, group=(0, 1), timeout=LIMIT, **arguments):
    comm.preduce(arguments.pop("x", np.ones(1)), group, timeout=timeout, **arguments)


# --- Nobody waits for a rank that comes no more


@pytest.mark.parametrize("size", [2, 3])
def test_a_communicator_can_be_closed_after_a_stall(size):
    """Rank 1 never calls preduce, and rank 2 is in no group."""
    given_up = threading.Event()

    def program(comm):
        if comm.rank == 0:
            with pytest.raises(pc.StallError):
                call(comm, timeout=0.2)
            given_up.set()
        assert given_up.wait(LIMIT)

    run_ranks(size, program, timeout=20.0)


def test_groups_that_wait_in_a_circle_can_be_closed():
    """Each rank has come to a group of which another has not. Who gives up first ends the waiting of the others."""
    given_up = threading.Barrier(3)

    def program(comm):
        with pytest.raises((pc.StallError, pc.ClosedError)):
            call(comm, [(0, 1), (1, 2), (2, 0)][comm.rank], timeout=0.3)
        given_up.wait(LIMIT)

    run_ranks(3, program, timeout=20.0)


@pytest.mark.parametrize("leave", ["close", "raise"])
def test_a_rank_that_leaves_is_not_waited_for(leave):
    """Without a limit: the others are told."""

    def program(comm):
        if comm.rank == 1:
            time.sleep(0.2)
            if leave == "raise":
                raise KeyError
            return
        with pytest.raises(pc.ClosedError, match=r"P-Reduce of ranks 0-2 .*rank 1 has closed the communicator"):
            call(comm, (0, 1, 2), timeout=None)

    outcome = run_ranks(3, program, timeout=20.0, return_exceptions=True)
    assert [type(result) for result in outcome] == [
        type(None),
        KeyError if leave == "raise" else type(None),
        type(None),
    ]


def test_a_rank_that_gave_up_is_not_waited_for():
    """Rank 0 can perform none any more; what it had come to is performed."""
    given_up, refused = threading.Event(), threading.Event()

    def program(comm):
        x = np.full(1, float(comm.rank))
        if comm.rank == 0:
            with pytest.raises(pc.StallError):
                call(comm, (0, 1), timeout=0.2, x=x)
            given_up.set()
            assert refused.wait(LIMIT)  # once it closes, that is the reason
        elif comm.rank == 1:
            assert given_up.wait(LIMIT)
            call(comm, (0, 1), timeout=None, x=x)
            return x[0]
        else:
            assert given_up.wait(LIMIT)
            with pytest.raises(pc.ClosedError, match="rank 0 gave up an earlier one"):
                call(comm, (0, 2), timeout=None)
            refused.set()
        return None

    assert run_ranks(3, program, timeout=20.0) == [None, 0.5, None]


def test_closing_says_for_whom_a_preduce_waits():
    seen = threading.Event()

    def program(comm):
        if comm.rank == 0:
            with pytest.raises(pc.StallError):
                call(comm, (0, 1), timeout=0.1)
            with pytest.raises(pc.StallError, match="'preduce' is not closed on rank 1;"):
                comm.close(timeout=0.3)
            seen.set()
        else:
            assert seen.wait(LIMIT)

    run_ranks(2, program, timeout=20.0)


# --- Stalls


def test_a_stall_after_others_of_the_same_group_names_who_is_missing():
    """Rank 1 has performed the same before."""
    given_up = threading.Event()

    def program(comm):
        for _ in range(3):
            call(comm)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=r"of ranks 0, 1: .*have not arrived: rank 1 \(alive") as raised:
                call(comm, timeout=0.2)
            assert "wait again" not in str(raised.value)
            given_up.set()
        else:
            assert given_up.wait(LIMIT)

    run_ranks(2, program, timeout=20.0)


def in_one_of(tries, ranks, program, **options):
    """What the ranks return if the moment is met at which something is to happen: a loaded machine may miss it."""
    for _ in range(tries - 1):
        outcome = run_ranks(ranks, program, return_exceptions=True, **options)
        if not any(isinstance(result, BaseException) for result in outcome):
            return outcome
    return run_ranks(ranks, program, **options)


def test_a_preduce_that_completes_while_its_stall_is_explained():
    """Rank 1 answers nothing before its first call, which comes while rank 0 waits for its answer."""

    def program(comm):
        x = np.full(1, float(comm.rank))
        if comm.rank == 1:
            time.sleep(0.25)
            comm._context.part(ExplicitGroups).in_use()  # as the call begins: the inquiry is read
            time.sleep(0.1)
        call(comm, x=x, timeout=0.2 if comm.rank == 0 else LIMIT)
        return x[0]

    assert in_one_of(5, 2, program, timeout=20.0) == [0.5, 0.5]


def test_a_synchronisation_that_completes_while_its_stall_is_explained():
    """Rank 2 has the generator, and nobody moves its messages once the group of ranks 0 and 1 has been granted."""

    def program(comm):
        x = np.full(1, float(comm.rank))
        with comm.partial_reduce(x, groups=pc.groups.RandomGroups(2, seed=SEED_OF_0_AND_1), coordinator_rank=2) as pr:
            start = time.monotonic()
            if comm.rank == 2:
                while time.monotonic() < start + 0.2:
                    comm.advance()
                time.sleep(1.0)
                return None
            if comm.rank == 1:
                time.sleep(0.5)
            return pr.average(x, timeout=0.3 if comm.rank == 0 else LIMIT).group

    assert in_one_of(5, 3, program, timeout=20.0, progress="caller")[:2] == [(0, 1), (0, 1)]


# --- Mistakes of the caller


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"x": np.ones(2)}, "SUM of 2 float64, the same group"),
        ({"x": np.ones(0)}, "SUM of 0 float64, the same group"),
        ({"x": np.ones(1, "f4")}, "SUM of 1 float32, the same group"),
        ({"op": "MAX"}, "MAX of 1 float64, the same group"),
        ({"group": [0, 1, 2]}, "SUM of 1 float64, another group, of 3 ranks"),
    ],
    ids=["count", "no elements", "dtype", "op", "group"],
)
def test_ranks_in_different_preduces_are_told(other, what):
    """Both, at once and without a limit; other collectives go on, and the communicator can be closed."""

    def program(comm):
        arguments = {"group": [0, 1], "op": "SUM"} | (other if comm.rank == 1 else {})
        if comm.rank < 2:
            with pytest.raises(pc.MismatchError, match="preduce: rank") as raised:
                call(comm, **arguments, timeout=None)
            with pytest.raises(pc.ClosedError, match="unusable"):
                call(comm, (0, 1))
        elif "group" in other:
            with pytest.raises(pc.MismatchError, match=r"rank [01] found members of one in different ones"):
                call(comm, (0, 1, 2), op="SUM", timeout=None)
        assert comm.partial_allreduce(np.ones(1), policy=pc.Full()).allreduce(np.ones(1))[0].tolist() == [3.0]
        return str(raised.value) if comm.rank < 2 else None

    texts = run_ranks(3, program, timeout=20.0)
    assert f"rank 1 in another one with it ({what})" in texts[0]
    assert "rank 0 in another one with it (SUM of 1 float64" in texts[1]


def test_another_order_is_found_out():
    """Rank 0 performs the pair first, ranks 1 and 2 the group of all."""

    def program(comm):
        with pytest.raises(pc.MismatchError, match="preduce: "):
            call(comm, (0, 1) if comm.rank == 0 else (0, 1, 2), timeout=None)

    run_ranks(3, program, timeout=20.0)


def test_values_on_both_sides_of_the_limit_of_shared_memory(monkeypatch, ranks_per_node):
    """One would meet there, the other one send messages."""
    monkeypatch.setattr(arguments, "SHORTEST_ON_BOARD", 16)

    def program(comm):
        with pytest.raises(pc.MismatchError, match=r"of 1 float64.*of 2 float64|of 2 float64.*of 1 float64"):
            call(comm, x=np.ones(1 + comm.rank), timeout=None)

    run_ranks(2, program, timeout=20.0)


# --- The caller's array


def test_a_refused_call_does_not_keep_the_array():
    """After a stall the array of that call is in use, those of later ones are not."""

    class Array(np.ndarray):
        """One that a weak reference can name."""

    given_up = threading.Event()

    def program(comm):
        if comm.rank == 1:
            assert given_up.wait(LIMIT)
            return None
        with pytest.raises(pc.StallError):
            call(comm, timeout=0.1)
        later = np.ones(1).view(Array)
        reference = weakref.ref(later)
        with pytest.raises(pc.ClosedError):
            comm.preduce(later, (0, 1))
        del later
        gc.collect()
        given_up.set()
        return reference() is None

    assert run_ranks(2, program, timeout=20.0)[0]


# --- What is told


def waits_of(comm):
    return [track["wait"]["for"] for track in comm.flight_record()["collectives"] if "wait" in track]


@pytest.mark.parametrize(
    ("groups", "awaited"),
    [(pc.groups.RandomGroups(2), "group 0 of ranks 0, 1"), (pc.groups.StaticGroups(2), "a group for step 7")],
    ids=["group", "request"],
)
def test_the_flight_record_says_what_is_waited_for(groups, awaited):
    given_up = threading.Event()

    def program(comm):
        x = np.ones(1)
        with comm.partial_reduce(x, groups=groups) as pr:
            if comm.rank == 1:
                assert given_up.wait(LIMIT)
                return
            with pytest.raises(pc.StallError):
                pr.average(x, step=7, timeout=0.2)
            waits = waits_of(comm)
            given_up.set()
        assert waits == [awaited]

    run_ranks(2, program, timeout=20.0)


def test_a_generator_tells_of_a_workers_own_groups_first():
    """What it says to a rank that stalls may be cut off at the end."""
    generator = core.GroupGenerator([0] * 8)
    for group in ([0, 1], [2, 3], [4, 5], [6, 4]):
        generator.propose(group[0], group)
    numbers = [int(line.split()[1]) for line in generator.describe(4).splitlines()]
    assert numbers == [2, 3, 0, 1]
    assert [int(line.split()[1]) for line in generator.describe().splitlines()] == [0, 1, 2, 3]


def test_a_step_that_no_word_can_hold_is_refused():
    def program(comm):
        weights = np.full(1, float(comm.rank))
        with comm.partial_reduce(weights, groups=pc.groups.StaticGroups(2)) as pr:
            with pytest.raises(ValueError, match=r"expected 0 <= step < 2\*\*39"):
                pr.average(weights, step=1 << 39)
            for step in ((1 << 39) - 2, (1 << 39) - 1):
                pr.average(weights, step=step, timeout=LIMIT)
        return weights[0]

    assert run_ranks(2, program) == [0.5, 0.5]


# --- Creation


def test_a_plan_that_one_rank_cannot_make_is_an_error_on_all(monkeypatch):
    """A group's algorithm may be written in Python, and exist on some ranks only."""
    choose = arguments.group_algorithm

    def chosen(*of):
        return "missing" if threading.current_thread().name == "rank 1" else choose(*of)

    monkeypatch.setattr(arguments, "group_algorithm", chosen)

    def program(comm):
        expected = (ValueError, "missing") if comm.rank == 1 else (pc.MismatchError, "refused on rank 1: .*missing")
        with pytest.raises(expected[0], match=expected[1]):
            comm.partial_reduce(np.ones(4), groups=pc.groups.RandomGroups(size=2))
        monkeypatch.setattr(arguments, "group_algorithm", choose)
        comm.agree("what follows", lambda: Nothing())
        with comm.partial_reduce(np.ones(4), groups=pc.groups.RandomGroups(size=2)) as pr:
            pr.average(np.ones(4), timeout=LIMIT)

    run_ranks(3, program)


class Nothing:
    """What all ranks say alike."""

    def signature(self):
        return {}
