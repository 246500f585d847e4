"""Calls from C: pycollectives.h by itself, and each of its functions through tests/support/c_calls.pyx."""

from __future__ import annotations

import math
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from c_build import STRICT, build, load, run

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

SUPPORT = Path(__file__).resolve().parents[2] / "support"
HEADER = Path(pc.get_include()) / "pycollectives.h"
LIMIT = 20.0

every_shape = pytest.mark.parametrize("ranks_per_node", ["all", 1])


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    return load(build(SUPPORT / "c_calls.pyx", tmp_path_factory.mktemp("c")))


def refused(c, code, text):
    return pytest.raises(c.CError, match=rf"^{code}: .*{text}")


# ------------------------------------------------------------------------------------------------ the header


@pytest.mark.parametrize(
    "before", ["", "#define PYC_LINKED\n", "#include <Python.h>\n"], ids=["types", "linked", "python"]
)
def test_the_header_is_plain_c(tmp_path, before):
    source = tmp_path / "header.c"
    source.write_text(
        f"{before}#include <pycollectives.h>\nint size(void);\nint size(void) {{ return sizeof(pyc_round); }}\n"
    )
    build(source, tmp_path, flags=STRICT)


def test_the_header_is_plain_cpp(tmp_path):
    source = tmp_path / "header.cpp"
    source.write_text("#include <pycollectives.h>\nint version() { return PYC_API_VERSION; }\n")
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    run(["c++", *flags, "-I", pc.get_include(), str(source)], tmp_path)


def test_a_table_that_is_too_old_is_refused(tmp_path):
    text = HEADER.read_text()
    assert "#define PYC_API_VERSION 1\n" in text
    (tmp_path / "pycollectives.h").write_text(text.replace("PYC_API_VERSION 1\n", "PYC_API_VERSION 99\n"))
    newer = load(build(SUPPORT / "c_calls.pyx", tmp_path, include=tmp_path))
    with pytest.raises(ImportError, match="expected version 99 of the C API, the installed package has 1"):
        run_ranks(1, lambda comm: newer.Calls(comm.partial_allreduce(np.zeros(1))))


def test_the_example_of_the_page(tmp_path):
    page = SUPPORT.parents[1] / "docs" / "c-api.md"
    (example,) = re.findall(r"^```cython\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "sums.pyx").write_text(example)
    sums = load(build(tmp_path / "sums.pyx", tmp_path))

    def program(comm):
        x = np.array([1.0, comm.rank])
        sums.add_up(comm.partial_allreduce(x, policy="full"), x)
        return x.tolist()

    assert run_ranks(2, program) == [[2.0, 1.0]] * 2


# ------------------------------------------------------------------------------------------------ each call


@every_shape
def test_partial_allreduce(c, ranks_per_node):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(2), policy="full")
        calls = c.Calls(ar)
        with refused(c, "state", "has no result yet; contribute and wait first"):
            calls.result(np.empty(2))
        for step in range(3):
            request = calls.contribute(np.array([1.0, comm.rank + step]))
            info = request.wait(LIMIT)
            assert request.is_null
            assert (info["round"], info["contributors"], info["included"]) == (step, comm.size, 1)
            assert calls.result(np.empty(2)).tolist() == [3.0, 3.0 + 3 * step]
            assert ar.result.tolist() == [3.0, 3.0 + 3 * step]  # Python sees the same
            assert request.wait(0.0) is not None  # of none
            assert request.test() == (True, 0)
        request = calls.contribute(np.ones(2))
        deadline = time.monotonic() + LIMIT
        while not (answer := request.test())[0]:
            assert time.monotonic() < deadline
        assert answer == (True, 3)
        assert request.is_null
        assert ar.statistics().contributions == 4

    run_ranks(3, program, ranks_per_node=ranks_per_node)


@every_shape
def test_flush_delivers_what_is_pending(c, ranks_per_node):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(1), policy="majority", missed="sum")
        calls = c.Calls(ar)
        total = 0.0
        for _ in range(5):
            assert not ar.must_flush
            request = calls.contribute(np.ones(1))
            assert ar.must_flush
            if request.test()[0]:
                total += calls.result(np.empty(1))[0]
            calls.flush(LIMIT)
            total += calls.result(np.empty(1))[0]
        return total

    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [15.0] * 3


@every_shape
@pytest.mark.parametrize("count", [2, 20000], ids=["small", "large"])
def test_preduce_with_members_in_python(c, ranks_per_node, count):
    def program(comm):
        calls = c.Calls.of_preduce(comm, count, "float64", "AVG")
        assert calls.address() == c.Calls.of_preduce(comm, count, "float64", "AVG").address()
        x = np.full(count, float(comm.rank))
        if comm.rank == 2:
            comm.preduce(x, [2, 0], timeout=LIMIT)
        elif comm.rank == 0:
            calls.preduce(x, [2, 0], LIMIT)
        calls.preduce(x, [comm.rank], LIMIT)
        calls.preduce(x, range(comm.size), LIMIT)
        return x.tolist() == [1.0] * count

    assert all(run_ranks(3, program, ranks_per_node=ranks_per_node))


def test_a_refused_preduce_is_an_error_on_all_members(c):
    def program(comm):
        calls = c.Calls.of_preduce(comm, 2, "float64", "SUM")
        for group, why in (([0, 5], "ranks below 2"), ([0, 0, 1], "each rank once"), ([1 - comm.rank], "in it")):
            with refused(c, "argument", why):
                calls.preduce(np.ones(2), group, LIMIT)
        wrong = np.ones(3) if comm.rank == 0 else np.ones(2)
        code, text = ("argument", "expected 2 float64, got 3 float64") if comm.rank == 0 else ("mismatch", "")
        with refused(c, code, text):
            calls.preduce(wrong, [0, 1], LIMIT)
        x = np.ones(2)
        calls.preduce(x, [0, 1], LIMIT)
        assert x.tolist() == [2.0, 2.0]
        ar = comm.partial_allreduce(np.zeros(1), policy="majority")
        ar.contribute(np.ones(1))
        with refused(c, "state", "flush first: ranks may still wait for this one in"):
            calls.preduce(x, [0, 1], LIMIT)
        ar.flush(timeout=LIMIT)

    run_ranks(2, program)


@every_shape
def test_average_in_generated_groups(c, ranks_per_node):
    def program(comm):
        x = np.full(3, float(comm.rank))
        pr = comm.partial_reduce(x, groups="random:2")
        calls = c.Calls(pr)
        for _ in range(2):
            calls.average(x, LIMIT)
        assert pr.average(x, timeout=LIMIT) is not None
        assert pr.statistics().averages == 3
        assert pr._next_step == 3
        pr.leave()
        return x.tolist()

    assert run_ranks(2, program, ranks_per_node=ranks_per_node) == [[0.5] * 3] * 2


@every_shape
@pytest.mark.parametrize("service", ["neighbor_averaging", "push_sum"])
def test_average_with_neighbors(c, ranks_per_node, service):
    def program(comm):
        x = np.full(2, float(comm.rank))
        na = getattr(comm, service)(x, topology="complete")
        calls = c.Calls(na)
        for step in range(20):
            (calls.average if (step + comm.rank) % 2 else na.average)(x)
        return x.tolist()

    for values in run_ranks(3, program, ranks_per_node=ranks_per_node, communicator_timeout=LIMIT):
        assert values == pytest.approx([1.0, 1.0])


def test_a_step_continues_after_a_stall(c):
    def program(comm):
        x = np.full(2, float(comm.rank))
        calls = c.Calls(comm.neighbor_averaging(x, topology="ring"))
        if comm.rank == 0:
            with refused(c, "stall", "rank 1"):
                calls.average(x, 0.2)
            assert x.tolist() == [0.0, 0.0]
            with refused(c, "state", "begun with other memory"):
                calls.average(np.zeros(2), LIMIT)
            stalled.set()
        assert stalled.wait(LIMIT)
        calls.average(x, LIMIT)
        return x.tolist()

    stalled = threading.Event()
    assert run_ranks(2, program) == [[0.5, 0.5]] * 2


def test_pairwise(c):
    def program(comm):
        model = comm.pairwise_averaging(np.zeros(2), topology="ring")
        calls = c.Calls(model)
        calls.apply(np.full(2, comm.rank + 1.0))
        assert calls.read(np.empty(2)).shape == (2,)
        mean = model.equalize(timeout=LIMIT)
        assert calls.read(np.empty(2)).tolist() == mean.tolist()
        return mean.tolist()

    assert run_ranks(2, program) == [[1.5, 1.5]] * 2


@every_shape
def test_parameter_server(c, ranks_per_node):
    def program(comm):
        w = np.zeros(2)
        with comm.parameter_server(w, sync="bsp", update=pc.servers.SGD(0.5), servers=[0], workers=[0, 1]) as ps:
            calls = c.Calls(ps)
            if comm.rank == 2:
                with refused(c, "argument", "this rank is no worker"):
                    calls.push(np.ones(2), LIMIT)
            else:
                for _ in range(3):
                    calls.push(np.full(2, float(comm.rank)), LIMIT)
                    calls.pull(w, LIMIT)
                with refused(c, "argument", "expected finite values, got NaN"):
                    calls.push(np.full(2, math.nan), LIMIT)
                assert ps.clock == 3
                ps.suspend(timeout=LIMIT)
            ready.wait(LIMIT)
            return calls.pull(w, LIMIT).tolist()  # of the newest version, on all

    ready = threading.Barrier(3)
    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [[-0.75, -0.75]] * 3


# ------------------------------------------------------------------------------------------------ errors


def test_wrong_arguments(c):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(2), name="sum")
        calls = c.Calls(ar)
        for x, dtype, got in (
            (np.zeros(3), None, "3 float64"),
            (np.zeros(2, np.float32), None, "2 float32"),
            (np.zeros(2), "other", "element type 99"),
            (None, None, "NULL"),
        ):
            with refused(c, "argument", rf"'sum': contribute: expected 2 float64, got {got}$"):
                calls.contribute(x, dtype)
        assert ar.statistics().contributions == 0
        for call in (calls.average, calls.push, calls.pull, calls.read, calls.apply):
            with refused(c, "argument", "expected a .*, got a partial allreduce"):
                call(np.zeros(2))
        with refused(c, "argument", "expected a partial allreduce, got NULL"):
            c.Calls(None).contribute(np.zeros(2))
        request = calls.contribute(np.zeros(2))
        for timeout in (-2.0, math.nan):
            with refused(c, "argument", "timeout: expected seconds"):
                request.wait(timeout)
        request.wait(math.inf)

    run_ranks(1, program)


def test_limits_and_their_default(c):
    def program(comm):
        calls = c.Calls(comm.partial_allreduce(np.zeros(1), policy="full"))
        if comm.rank == 0:
            request = calls.contribute(np.ones(1))
            for limit in (0.1, c.DEFAULT):
                with refused(c, "stall", "rank 1"):
                    request.wait(limit)
            with pytest.raises(pc.StallError, match="rank 1") as stall:
                request.raised(0.1)
            assert stall.value.record["reason"] == "StallError"
            stalled.set()
            request.wait(LIMIT)
        else:
            assert stalled.wait(LIMIT)
            calls.contribute(np.ones(1)).wait(LIMIT)

    stalled = threading.Event()
    run_ranks(2, program, communicator_timeout=0.5)


def test_closed(c):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(1))
        calls = c.Calls(ar)
        ar.close(timeout=LIMIT)
        with refused(c, "closed", "is closed"):
            calls.contribute(np.ones(1))
        with pytest.raises(pc.ClosedError, match="is closed"):
            c.Calls(ar)

    run_ranks(2, program)


def test_one_thread_at_a_time(c):
    def program(comm):
        ar = comm.partial_allreduce(np.zeros(1), policy="full")
        calls = c.Calls(ar)
        if comm.rank == 1:
            assert refused_twice.wait(LIMIT)
            ar.contribute(np.ones(1)).wait(timeout=LIMIT)
            return
        request = calls.contribute(np.ones(1))

        def wait():
            try:
                request.wait(LIMIT)
            except Exception as error:
                assert "another thread is in a call" in str(error)  # the call from Python came first
                wait()

        waiting = threading.Thread(target=wait)
        waiting.start()
        with pytest.raises(RuntimeError, match="another thread is in a call"):
            while waiting.is_alive():
                ar.contribute(np.ones(1))
        with refused(c, "state", "another thread is in a call"):
            calls.contribute(np.ones(1))
        refused_twice.set()
        waiting.join(LIMIT)

    refused_twice = threading.Event()
    run_ranks(2, program)


def test_objects_without_calls_from_c(c, monkeypatch):
    def program(comm):
        for other in (comm.hop(np.zeros(1), topology="ring"), comm.counter()):
            with pytest.raises(TypeError, match=f"expected a partial allreduce.* call this {type(other).__name__}"):
                c.Calls(other)
        with pytest.raises(TypeError, match="C cannot call the Python rule of StaticGroups"):
            c.Calls(comm.partial_reduce(np.zeros(1), groups="static:2"))
        ar = comm.partial_allreduce(np.zeros(1))
        monkeypatch.setattr(ar._context, "membership", object())
        with pytest.raises(TypeError, match="expected a communicator with on_failure='raise'"):
            c.Calls(ar)
        with pytest.raises(TypeError, match="expected a communicator with on_failure='raise'"):
            c.Calls.of_preduce(comm, 1, "float64", "AVG")
        monkeypatch.undo()
        with pytest.raises(TypeError, match="SUM"):
            c.Calls.of_preduce(comm, 1, "bool", "SUM")

    run_ranks(1, program)


def test_checks_across_ranks_do_not_see_calls_from_c(c):
    def program(comm):
        with pytest.raises(TypeError, match="PYC_CHECK=1 cannot check calls from C"):
            c.Calls(comm.partial_allreduce(np.zeros(1)))

    run_ranks(1, program, check=True)


def test_progress_in_calls(c):
    def program(comm):
        calls = c.Calls(comm.partial_allreduce(np.zeros(1), policy="full"))
        for _ in range(3):
            assert calls.contribute(np.ones(1)).wait(LIMIT)["contributors"] == comm.size

    run_ranks(loopback(3, progress="caller", ranks_per_node=1), program)


def test_ctrl_c_ends_a_wait(c):
    """The handler runs in the main thread, which must be the one that waits."""
    comm, other = comms = loopback(2)
    making = threading.Thread(target=other.partial_allreduce, args=(np.zeros(1),), kwargs={"policy": "full"})
    making.start()
    calls = c.Calls(comm.partial_allreduce(np.zeros(1), policy="full"))
    making.join(LIMIT)
    request = calls.contribute(np.ones(1))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        request.raised(LIMIT)
    assert time.monotonic() - began < LIMIT / 2
    for each in comms:
        each.abort()
