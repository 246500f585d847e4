"""Which selection table a process uses, and what ranks with different ones are told."""

import json
import os
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.arguments import Group, creating
from pycollectives.partial_allreduce import arguments
from pycollectives.partial_allreduce.arguments import PartialAllreduceArguments
from pycollectives.selection import tables
from pycollectives.selection.choice import Row, SelectionTable
from pycollectives.support.environment import selection_files
from pycollectives.support.machine import Machine
from pycollectives.testing import run_ranks


def document(schedule="ring", machine="here", segment_bytes=65536):
    table = SelectionTable((Row(schedule),), segment_bytes=(Row(segment_bytes),), source="a test").as_json()
    return {**table, "machine": Machine.here().as_json()} if machine == "here" else {**table, "machine": machine}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A home without a table."""
    monkeypatch.delenv("PYC_SELECTION", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def users(folder, content):
    path = folder / "config" / "pycollectives" / "selection.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def named(folder, monkeypatch, content):
    path = folder / "named.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    monkeypatch.setenv("PYC_SELECTION", str(path))
    return path


# --- where it comes from ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"HOME": "/home/me"}, (None, "/home/me/.config/pycollectives/selection.json")),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/me"}, (None, "/etc/me/pycollectives/selection.json")),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "me"}, (None, "/home/me/.config/pycollectives/selection.json")),
        ({"HOME": "/h", "PYC_SELECTION": ""}, (None, "/h/.config/pycollectives/selection.json")),
        ({"HOME": "/h", "PYC_SELECTION": "t.json"}, ("t.json", "/h/.config/pycollectives/selection.json")),
    ],
)
def test_files(environment, found):
    assert tuple(path and str(path) for path in selection_files(environment)) == found


def test_the_built_in_one_if_there_is_no_other():
    assert tables.in_use() is tables.built_in()


def test_the_users(folder):
    path = users(folder, document())
    table = tables.in_use()
    assert (table.name, table.choose(9, 9, 8).name) == (str(path), "ring")


def test_the_named_one_goes_first(folder, monkeypatch):
    users(folder, document("ring"))
    path = named(folder, monkeypatch, document("tree"))
    assert (tables.in_use().name, tables.in_use().choose(9, 9, 2**30).name) == (str(path), "tree")


@pytest.mark.parametrize("key", ["cpu", "cores", "mpi"], ids="of {}".format)  # pytest-mpi skips what is called "mpi"
def test_the_users_of_another_machine_is_not_used_and_that_is_said_once(folder, key):
    other = {**Machine.here().as_json(), key: 999 if key == "cores" else "another"}
    path = users(folder, document(machine=other))
    with pytest.warns(RuntimeWarning, match="was made on .*; this machine is .*: the built-in table is used") as caught:
        assert tables.in_use() is tables.built_in()
    assert str(path) in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tables.in_use() is tables.built_in()


def test_the_users_that_does_not_say_its_machine_is_not_used(folder):
    users(folder, document(machine=None))
    with pytest.warns(RuntimeWarning, match="does not state where it was made"):
        assert tables.in_use() is tables.built_in()


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', b"\xff\xfe".decode("latin-1")])
def test_the_users_if_it_is_malformed(folder, content):
    path = users(folder, content)
    with pytest.warns(RuntimeWarning, match=f"selection table {path}: .*; the built-in table is used"):
        assert tables.in_use() is tables.built_in()


def test_the_named_one_is_used_whatever_its_machine(folder, monkeypatch):
    named(folder, monkeypatch, document(machine={"cpu": "abacus", "cores": 1, "mpi": "Beads"}))
    assert tables.in_use().choose(9, 9, 8).name == "ring"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting property name"),
        ('{"format": 2}', "allreduce: missing"),
        ('{"format": 2, "allreduce": {"board": 5}}', "allreduce.board: expected a list of rows, got 5"),
    ],
)
def test_the_named_one_must_be_right(folder, monkeypatch, content, said):
    path = named(folder, monkeypatch, content)
    with pytest.raises(ValueError, match="^" + re.escape(f"selection table {path}: {said}")):
        tables.in_use()


def test_the_named_one_must_be_there(folder, monkeypatch):
    monkeypatch.setenv("PYC_SELECTION", str(folder / "nowhere.json"))
    with pytest.raises(ValueError, match=r"selection table .*nowhere.json: No such file"):
        tables.in_use()
    monkeypatch.setenv("PYC_SELECTION", str(folder))
    with pytest.raises(ValueError, match=r"selection table .*: expected a file"):
        tables.in_use()
    monkeypatch.setenv("PYC_SELECTION", "/dev/zero")
    with pytest.raises(ValueError, match=r"selection table /dev/zero: expected a file"):
        tables.in_use()


# --- writing ----------------------------------------------------------------------------------------------------------


def test_writing(folder):
    path = folder / "a" / "b" / "table.json"
    tables.write(path, document())
    assert json.loads(path.read_text()) == document()
    tables.write(path, document("tree"))
    assert tables.read(path).choose(9, 9, 8).name == "tree"
    assert os.listdir(path.parent) == ["table.json"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert max(map(len, path.read_text().splitlines())) < 150  # a line per row


def test_what_could_not_be_read_is_not_written(folder):
    path = folder / "table.json"
    tables.write(path, document())
    with pytest.raises(ValueError, match="format: expected 2"):
        tables.write(path, {})
    assert tables.read(path)
    assert os.listdir(folder) == ["table.json"]


def test_nothing_is_left_of_what_could_not_be_written(folder, monkeypatch):
    def fails(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space"):
        tables.write(folder / "table.json", document())
    assert os.listdir(folder) == []


# --- collectives ------------------------------------------------------------------------------------------------------


THREE_NODES = (0, 0, 0, 1, 1, 1, 2, 2, 2)


def made(algorithm="auto", **options):
    group = Group(0, 9, options.pop("nodes", range(9)), options.pop("costs", None))
    with creating(group, "sum"):
        return PartialAllreduceArguments(count=1, dtype="f4", policy=pc.Solo(), algorithm=algorithm, **options)


def test_the_digest_is_in_the_signature(folder):
    assert made().signature()["selection_table"] == "built-in"
    users(folder, document("ring", segment_bytes=4096))
    tables._first.cache_clear()
    signature = made().signature()
    assert signature["selection_table"] == tables.in_use().digest
    assert (signature["algorithm"], signature["segment_bytes"]) == ("ring", None)
    signature = made("board", nodes=THREE_NODES).signature()
    assert signature["selection_table"] == tables.in_use().digest
    assert (signature["algorithm"], signature["segment_bytes"]) == ("board+ring", 4096)


def test_a_schedule_asks_no_table(folder, monkeypatch):
    named(folder, monkeypatch, "{")
    assert made("ring").signature()["selection_table"] is None
    with pytest.raises(ValueError, match="named"):
        made()


def test_a_table_that_says_what_the_built_in_one_says_is_called_so(folder, monkeypatch):
    named(folder, monkeypatch, tables.built_in().as_json())
    assert made().signature()["selection_table"] == "built-in"


def test_what_the_engine_is_given():
    def given(*arguments, **options):
        everything = made(*arguments, **options).for_engine(options.get("nodes", range(9)))
        return everything["nodes"], everything["algorithm"], everything["segment_bytes"]

    each = tuple(range(len(THREE_NODES)))
    assert given("ring", nodes=THREE_NODES) == (each, "ring", 65536)
    assert given("board+ring", nodes=THREE_NODES) == (THREE_NODES, "ring", 65536)
    assert given(nodes=[0] * len(each))[0] == (0,) * len(each)


def test_ranks_with_different_tables_are_told():
    """Threads of one process share a table; so each rank of this test changes it in its turn."""
    forced = SelectionTable((Row("ring"),))
    turn = threading.Lock()
    own = arguments.tables.in_use

    def program(comm):
        with pytest.raises(pc.MismatchError) as caught:
            comm.partial_allreduce(count=4, dtype="f8", policy="solo")
        return str(caught.value)

    def by_rank():
        with turn:
            return forced if threading.current_thread().name == "rank 2" else own()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguments.tables, "in_use", by_rank)
        said = run_ranks(3, program)
    assert len(set(said)) == 1
    assert f"selection_table: built-in on ranks 0-1, {forced.digest} on rank 2" in said[0]


def test_using_a_table_for_a_while():
    table = SelectionTable((Row("rabenseifner"),))

    def program(comm):
        return comm.partial_allreduce(count=4, dtype="f8", policy="solo").algorithm

    with tables.using(table):
        assert run_ranks(3, program, ranks_per_node=1) == ["rabenseifner"] * 3
    assert run_ranks(3, program, ranks_per_node=1) == ["tree"] * 3


def test_results_are_right_whatever_the_table_says(folder, monkeypatch):
    named(folder, monkeypatch, document("ring"))

    def program(comm):
        ar = comm.partial_allreduce(count=100, dtype="f8", policy=pc.Full())
        return ar.algorithm, float(ar.allreduce(np.ones(100))[0][99])

    assert run_ranks(3, program) == [("board", 3.0)] * 3
    assert run_ranks(3, program, ranks_per_node=2) == [("board+ring", 3.0)] * 3
    assert run_ranks(3, program, ranks_per_node=1) == [("ring", 3.0)] * 3


def test_this_machine():
    here = Machine.here()
    assert here.cores == os.cpu_count()
    assert here.mpi.startswith(("Open MPI", "MPICH"))
    assert here.cpu
    if Path("/proc/cpuinfo").exists():
        assert here.cpu.split()[0] in Path("/proc/cpuinfo").read_text()
