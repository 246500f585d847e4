"""Which algorithm serves a group, and who builds its plan; by algorithms written in Python."""

import itertools
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.partial_reduce import explicit
from pycollectives.selection import tables
from pycollectives.selection.choice import Row, SelectionTable
from pycollectives.support.native import core
from pycollectives.testing import run_ranks

LIMIT = 30.0
numbers = itertools.count()


def star(s, source, result):
    """Everybody to rank 0 and back."""
    s.copy(source, result)
    if s.rank != 0:
        s.send(result, 0)
        s.recv(result, 0)
        return
    for rank in range(1, s.size):
        incoming = s.buffer(result.count)
        s.recv(incoming, rank)
        s.reduce(incoming, result)
    for rank in range(1, s.size):
        s.send(result, rank)


@pytest.fixture
def slow_star():
    """A table that names a slow algorithm written in Python, and the sizes of the groups that it built plans for."""
    built = []

    def build(s, source, result):
        built.append(s.size)
        time.sleep(0.02)  # others run Python meanwhile
        star(s, source, result)

    name = f"slow star {next(numbers)}"
    core.register_algorithm(name, build)
    with tables.using(SelectionTable(schedule=(Row(name),), source="this test")):
        yield built


def test_preduce_takes_the_table_in_use(slow_star):
    def program(comm):
        x = np.full(3, float(comm.rank))
        comm.preduce(x, range(3), op="SUM", timeout=LIMIT)
        return x.tolist()

    assert run_ranks(3, program, ranks_per_node=1) == [[3.0] * 3] * 3
    assert slow_star == [3, 3, 3]


def test_ranks_with_different_tables(monkeypatch):
    """Both members are told, and before a value is sent."""
    algorithms = iter(["ring", "recursive_doubling"])
    monkeypatch.setattr(explicit, "explicit_group_algorithm", lambda *_: next(algorithms))

    def program(comm):
        with pytest.raises(pc.MismatchError, match=r"another algorithm: PYC_SELECTION|different ones") as raised:
            comm.preduce(np.ones(8), [0, 1], timeout=LIMIT)
        return str(raised.value)

    assert any("PYC_SELECTION" in text for text in run_ranks(2, program, ranks_per_node=1))


def plans_of(pr):
    """How many groups were performed by messages."""
    counted = pr.statistics()
    return counted.cache_hits + counted.cache_misses


@pytest.mark.timeout(90)
@pytest.mark.parametrize("groups", [pc.groups.StaticGroups(2), pc.groups.RandomGroups(2, group_buffer=False)], ids=repr)
def test_counters_are_read_while_a_plan_is_built(slow_star, groups):
    """Whoever reads them has the GIL, which the algorithm waits for: neither may hold what the other needs."""

    def program(comm):
        weights = np.ones(2)
        ended = threading.Event()
        pr = comm.partial_reduce(weights, groups=groups)

        def read():
            while not ended.is_set():
                assert pr.statistics().cache_hits >= 0
                assert pr.statistics().cache_misses >= 0
                assert comm.statistics().preduce_cache[0] >= 0

        reader = threading.Thread(target=read)
        reader.start()
        try:
            with pr:
                for step in range(6):
                    pr.average(weights, step, timeout=LIMIT)
            for members in ([0, 1], [0, 1, 2, 3]):
                if comm.rank in members:
                    comm.preduce(weights, members, timeout=LIMIT)
        finally:
            ended.set()
            reader.join()
        return plans_of(pr)

    assert all(count > 0 for count in run_ranks(4, program, ranks_per_node=1))
    assert set(slow_star) == {2, 4}


@pytest.mark.parametrize("count", [8, 40_000], ids=["by_messages", "on_board"])
def test_the_memory_that_groups_take(count):
    """What a group by messages needs is made when the first one comes; what a node shares is made at once."""

    def program(comm):
        values = np.ones(count, np.float16)  # sums are wider
        pr = comm.partial_reduce(values, groups=pc.groups.StaticGroups(2))
        before = pr.statistics().memory_bytes
        for _ in range(2):  # in its first step each rank is alone
            pr.average(values, timeout=LIMIT)
        return before, pr.statistics().memory_bytes

    for before, after in run_ranks(2, program):
        assert (before > 0) == (count > 8)
        assert after > before or count > 8
