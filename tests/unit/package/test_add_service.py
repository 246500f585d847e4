"""The service of CONTRIBUTING.md, "Add a service", works as it says, and the communicator treats it as its own."""

import re
import threading
import warnings
from pathlib import Path

import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

ROOT = Path(__file__).parents[3]
LIMIT = 60.0


@pytest.fixture(scope="module")
def page():
    """What the programs of the section define."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Add a service\n")[1].split("\n## ")[0]
    programs = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert sum(program.count("\n") for program in programs) < 150
    names = {"__name__": "page"}
    for program in programs:
        exec(program, names)
    return names


@pytest.fixture(scope="module")
def tally(page):
    return page["Tally"]


@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
def test_totals_are_equal_after_a_flush(tally, ranks_per_node):
    """Rank 1 comes when the others are through with their events; rank 2 never counts any."""

    def program(comm):
        with comm.create(tally, start=100) as made:
            if comm.rank == 0:
                for _ in range(5):
                    made.add(1)
                through.set()
            elif comm.rank == 1:
                through.wait(LIMIT)
                made.add(10)
            first = made.flush()
            if comm.rank == 2:
                made.add(1000)
            return made.name, first, made.flush()

    through = threading.Event()
    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [("tally[0]", 115, 1115)] * 3


def test_arguments_are_compared(tally):
    def program(comm):
        with pytest.raises(pc.MismatchError, match="tally: arguments differ: start: 0 on rank 0, 1 on rank 1"):
            comm.create(tally, start=comm.rank)
        expected = ValueError if comm.rank == 1 else pc.MismatchError
        with pytest.raises(expected, match="start: expected at least 0, got -1"):
            comm.create(tally, start=-comm.rank)
        return comm.create(tally).add(0) >= 0

    assert run_ranks(2, program) == [True, True]


def test_the_communicator_flushes_and_closes_what_is_open(tally):
    """In the order of creation, in which ranks flush different kinds."""

    def program(comm):
        made = comm.create(tally)
        other = comm.partial_allreduce(count=1, dtype="int64")
        if comm.rank == 0:
            made.add(7)
        comm.close()
        return made.total, made.closed, other.closed

    assert run_ranks(3, program) == [(7, True, True)] * 3


def test_an_exception_aborts_it_with_a_warning(tally):
    (comm,) = loopback(1)
    made = comm.create(tally, name="events")
    with (
        pytest.warns(RuntimeWarning, match="1 open.* ended with KeyError: closed without flush"),
        pytest.raises(KeyError),
        comm,
    ):
        raise KeyError
    assert made.closed
    assert comm.closed


def test_a_limit_names_who_has_not_come(tally):
    def program(comm):
        made = comm.create(tally)
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match="rank 1"):
                made.flush(timeout=0.2)
            stalled.set()
        stalled.wait(LIMIT)
        made.flush()
        return made.total

    stalled = threading.Event()
    assert run_ranks(2, program) == [0, 0]


def test_a_method_of_the_communicator(page):
    class Communicator(pc.Communicator):
        tally = page["tally"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (comm,) = loopback(1)
        comm.__class__ = Communicator
        with comm:
            assert comm.tally(start=3).add(4) == 7
