"""The partial allreduce's own work, on an engine that is played: checks, one thread at a time, ways to leave."""

import threading
import warnings

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.agreement.checking import NoChecks
from pycollectives.arguments import Group, creating
from pycollectives.partial_allreduce.arguments import PartialAllreduceArguments
from pycollectives.partial_allreduce.collective import PartialAllreduce
from pycollectives.support.deadline import Deadline
from pycollectives.support.native import core


class PlayedRound:
    def __init__(self, gate):
        self.gate = gate

    def wait(self, *, timeout=None):
        if not self.gate.wait(timeout):
            raise pc.StallError("sum: round 0: missing rank 1")
        return "info"


class PlayedCollective:
    """Takes what it is given; its rounds complete while `gate` is open."""

    def __init__(self, convert=None):
        self.convert = convert
        self.calls = []
        self.result = np.arange(6, dtype="f4").reshape(2, 3)
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False
        self.in_own_process = True
        self.waiting = 0

    def made(self, options):
        self.convert = self.convert or options["convert"]
        return self

    def contribute(self, data):
        if self.closed:
            raise pc.ClosedError("sum is closed")
        self.calls.append(("contribute", memoryview(self.convert(data)).nbytes))
        self.waiting += 1
        return PlayedRound(self.gate)

    def allreduce(self, data, out=None, *, timeout=None):
        self.contribute(data)
        PlayedRound(self.gate).wait(timeout=timeout)
        return self.result if out is None else out, "info"

    def flush(self, *, timeout=None):
        self.calls.append(("flush", timeout))
        PlayedRound(self.gate).wait(timeout=timeout)
        return "info"

    def abort(self):
        self.calls.append(("abort",))
        self.closed = True
        discarded, self.waiting = self.waiting, 0
        return discarded

    def leave(self):
        self.calls.append(("leave",))
        self.closed = True


def arguments(like=None, *, size=4, **changed):
    options = {"policy": pc.Solo(), "missed": "latest", "algorithm": "ring", "name": "sum", **changed}
    with creating(Group(0, size, range(size)), "default"):
        return PartialAllreduceArguments(like, **options)


class PlayedContext:
    """What a collective needs of its communicator after it was made."""

    membership = None

    def __init__(self):
        self.timeout = 5.0
        self.closed = []
        self.announced = []
        self.engine = self
        self.in_own_process = True
        self.nodes = range(4)
        self.checks = NoChecks()

    def limit(self, timeout):
        return self.timeout if timeout is None else timeout

    def forget(self, closed):
        self.closed.append(closed)

    def announce(self, text):
        self.announced.append(text)


@pytest.fixture
def engine_side():
    return PlayedCollective()


@pytest.fixture
def context():
    return PlayedContext()


@pytest.fixture
def make(engine_side, context, monkeypatch):
    """Makes a partial allreduce like an array, on the engine that is played."""
    monkeypatch.setattr(core, "PartialAllreduce", lambda _engine, **options: engine_side.made(options))
    return lambda like, kind=PartialAllreduce: kind(context, arguments(like), Deadline(None))


@pytest.fixture
def ar(make):
    return make(np.zeros((2, 3), "f4"))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"like": None}, TypeError, "like, or count and dtype; like, or count and dtype missing"),
        ({"like": None, "count": 3}, TypeError, "dtype missing"),
        ({"like": None, "dtype": "f4"}, TypeError, "count missing"),
        ({"count": 3, "dtype": "f4"}, TypeError, "got both"),
        ({"like": None, "count": -1, "dtype": "f4"}, ValueError, "count: expected at least 0, got -1"),
        ({"like": None, "count": 2**61, "dtype": "f8"}, ValueError, f"count: expected at most {2**60 - 1}, got"),
        ({"like": None, "count": 2**64, "dtype": "i1"}, ValueError, f"count: expected at most {2**63 - 1}, got"),
        ({"like": None, "count": 1.5, "dtype": "f4"}, TypeError, "count: expected an integer, got 1.5"),
        ({"like": None, "count": 3, "dtype": "M8[s]"}, TypeError, "got datetime64"),
        ({"like": np.zeros((3, 4)).T}, BufferError, "C-contiguous"),
        ({"op": "mean"}, ValueError, "op: expected .* got 'mean'"),
        ({"op": print}, TypeError, "op: expected"),
        ({"policy": pc.Solo}, TypeError, "policy: expected an object such as"),
        ({"policy": 7}, TypeError, "policy: expected an object such as"),
        ({"policy": pc.Quorum(5)}, ValueError, "expected 1 <= k <= 4, the number of ranks, got 5"),
        ({"policy": "quorum:5"}, ValueError, "expected 1 <= k <= 4, the number of ranks, got 5"),
        ({"name": "two\nlines"}, ValueError, r"name: expected printable characters, got 'two"),
        ({"late": "add"}, ValueError, "late: expected 'accumulate' or 'replace' or 'drop', got 'add'"),
        ({"missed": "all"}, ValueError, "missed: expected 'latest' or 'sum', got 'all'"),
        ({"missed": "sum", "op": "MAX"}, ValueError, "expected op SUM or AVG, got MAX"),
        ({"max_staleness": -1}, ValueError, "max_staleness: expected at least 0, got -1"),
        ({"max_staleness": 2**64}, ValueError, f"max_staleness: expected at most {2**63 - 1}, got {2**64}"),
        ({"max_staleness": 0.5}, TypeError, "max_staleness: expected an integer"),
        ({"history": 0}, ValueError, "history: expected at least 1, got 0"),
        ({"history": 2**64}, ValueError, f"history: expected at most {2**63 - 1}, got {2**64}"),
        ({"algorithm": "clever"}, ValueError, "with NAME one of .*ring.*; got 'clever'"),
        ({"algorithm": "board"}, ValueError, "expected nodes of several ranks"),
        ({"algorithm": None}, TypeError, "algorithm: expected a name"),
        ({"name": ""}, ValueError, "name: expected 1 to 200 characters, got 0"),
        ({"name": 3}, TypeError, "name: expected a string"),
    ],
)
def test_arguments_refused(changed, error, message):
    with pytest.raises(error, match=message):
        arguments(**{"like": np.zeros(3), **changed})


def test_operations_of_mpi():
    MPI = pytest.importorskip("mpi4py.MPI")  # noqa: N806
    assert arguments(like=np.zeros(3), op=MPI.PROD).op == "PROD"
    assert arguments(like=np.zeros(3, bool), op=MPI.LAND).op == "LAND"
    with pytest.raises(TypeError, match="LAND is not defined on float64: it takes integers, bool"):
        arguments(like=np.zeros(3), op=MPI.LAND)
    with pytest.raises(TypeError, match=r"SUM is not defined on bool: .*; view the array as 'uint8' to count"):
        arguments(like=np.zeros(3, bool), op=MPI.SUM)
    with pytest.raises(ValueError, match=r"got MPI\.MAXLOC"):
        arguments(like=np.zeros(3), op=MPI.MAXLOC)
    custom = MPI.Op.Create(lambda a, b, datatype: None)
    with pytest.raises(ValueError, match=r"made by MPI\.Op\.Create"):
        arguments(like=np.zeros(3), op=custom)
    custom.Free()


def test_the_signature_leaves_the_shape_out():
    flat = arguments(count=6, dtype="float32")
    assert flat.signature() == arguments(like=np.zeros((2, 3), "f4")).signature()
    assert flat.signature() != arguments(like=np.zeros((2, 3))).signature()


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "MAX"},
        {"policy": pc.Majority()},
        {"late": "drop"},
        {"missed": "sum"},
        {"max_staleness": 3},
        {"history": 9},
        {"name": "another"},
    ],
)
def test_the_signature_has_everything_else(changed):
    assert arguments(like=np.zeros(3), **changed).signature() != arguments(like=np.zeros(3)).signature()


@pytest.mark.parametrize(("op", "missed"), [("SUM", "sum"), (pc.AVG, "sum"), ("MAX", "latest"), ("PROD", "latest")])
def test_what_is_missed_is_summed_where_it_can_be(op, missed):
    assert arguments(like=np.zeros(3), op=op, missed=None).missed == missed


def test_properties(ar):
    assert (ar.name, ar.op, ar.count, ar.shape, ar.dtype) == ("sum", "SUM", 6, (2, 3), np.dtype("float32"))
    assert (ar.policy, ar.algorithm, ar.closed) == (pc.Solo(), "ring", False)
    assert repr(ar) == "<PartialAllreduce 'sum' of 6 float32 SUM policy=Solo() algorithm=ring>"


def test_contribute_hands_the_memory_over(ar, engine_side):
    ar.contribute(np.zeros((2, 3), "f4"))
    ar.contribute(np.zeros((3, 2), "f4"))
    ar.contribute([np.zeros(6, "f4"), 6, "f"])
    assert engine_side.calls == [("contribute", 24)] * 3


def test_contribute_of_bfloat16(make, engine_side):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.zeros(6, ml_dtypes.bfloat16)
    make(x).contribute(x)
    assert engine_side.calls == [("contribute", 12)]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (np.zeros((3, 3), "f4"), ValueError, r"sum: expected shape \(2, 3\) \(6 elements\), got \(3, 3\)"),
        (np.zeros((2, 3), "f8"), TypeError, "sum: expected elements of float32, got float64"),
        (np.zeros((3, 2), "f4").T, BufferError, "sum: expected a C-contiguous buffer"),
        (0.5, TypeError, "sum: expected a buffer"),
    ],
)
def test_contributions_refused_before_anything_is_sent(ar, engine_side, wrong, error, message):
    with pytest.raises(error, match=message):
        ar.contribute(wrong)
    with pytest.raises(error, match=message):
        ar.allreduce(wrong)
    assert engine_side.calls == []


def test_allreduce(ar, engine_side):
    result, info = ar.allreduce(np.zeros((2, 3), "f4"))
    assert result is engine_side.result
    assert info == "info"


def test_what_a_result_is_written_to():
    made = arguments(like=np.zeros((2, 3), "f4"))
    out = np.zeros(6, "f4")
    array = made.writable(out)
    assert np.shares_memory(array, out)
    assert array.shape == (2, 3)
    for bad, error in ((np.zeros(5, "f4"), ValueError), (np.zeros(6), TypeError), ([bytes(24), "f"], BufferError)):
        with pytest.raises(error):
            made.writable(bad)


def test_a_failed_call_frees_the_collective(ar, engine_side):
    engine_side.gate.clear()
    with pytest.raises(pc.StallError):
        ar.allreduce(np.zeros((2, 3), "f4"), timeout=0)
    engine_side.gate.set()
    ar.flush()


def test_flush_takes_the_default_limit(ar, engine_side):
    ar.flush()
    ar.flush(timeout=1)
    assert engine_side.calls == [("flush", 5.0), ("flush", 1.0)]


def test_closing(ar, context):
    ar.leave()
    assert ar.closed
    assert context.closed == [ar]
    assert "closed" in repr(ar)
    with pytest.raises(pc.ClosedError):
        ar.contribute(np.zeros((2, 3), "f4"))


def test_leaving_the_block_flushes_then_closes(ar, engine_side):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ar as entered:
            assert entered is ar
    assert engine_side.calls == [("flush", 5.0), ("leave",)]


def test_leaving_the_block_after_leave_flushes_nothing(ar, engine_side):
    with ar:
        ar.leave()
    assert set(engine_side.calls) == {("leave",)}


def test_leaving_the_block_closes_even_if_the_flush_fails(ar, engine_side, context):
    engine_side.gate.clear()
    context.timeout = 0.01
    with pytest.raises(pc.StallError), ar:
        pass
    assert engine_side.closed


def contribute_twice_and_fail(ar):
    with ar:
        ar.contribute(np.zeros((2, 3), "f4"))
        ar.contribute(np.zeros((2, 3), "f4"))
        raise KeyError


def test_leaving_the_block_by_an_exception_discards_and_says_how_much(ar, engine_side, context):
    says = "ended with KeyError: closed without flush, 2 contributions discarded"
    with pytest.warns(RuntimeWarning, match=says) as seen, pytest.raises(KeyError):
        contribute_twice_and_fail(ar)
    assert seen[0].filename == __file__
    assert engine_side.calls[2:] == [("abort",)]
    assert context.closed == [ar]


def test_what_a_derived_class_overrides_is_used(make, engine_side):
    class Halved(PartialAllreduce):
        def contribute(self, x):
            return super().contribute(x / 2)

        def allreduce(self, x, out=None, *, timeout=None):
            result, info = super().allreduce(x / 2, out, timeout=timeout)
            return result, f"{info} of halves"

    seen = []
    engine_side.convert = lambda data: (seen.append(data.copy()), data)[1]
    halved = make(np.ones(6, "f4"), Halved)
    halved.contribute(np.full(6, 4, "f4"))
    assert halved.allreduce(np.full(6, 8, "f4"))[1] == "info of halves"
    assert [data[0] for data in seen] == [2, 4]


def test_what_no_class_overrides_is_the_engines_own_method(ar, engine_side):
    assert ar.contribute == engine_side.contribute
    assert ar.allreduce == engine_side.allreduce
