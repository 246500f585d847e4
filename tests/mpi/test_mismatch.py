"""Arguments that must agree are compared at creation: every rank raises, names ranks and values, and can go on."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
ODD = WORLD.size - 1  # the rank that differs

pytestmark = [
    pytest.mark.one_communicator(timeout=LIMIT),
    pytest.mark.mpi(min_size=2),
]

GOOD = {"count": 4, "dtype": "float64", "op": MPI.SUM, "policy": pc.Solo(), "algorithm": "ring", "late": "accumulate"}


def still_works(comm):
    """The communicator is as usable as before, and no rank has an object that another lacks."""
    with comm.partial_allreduce(**GOOD, missed="sum") as ar:
        result, _ = ar.allreduce(np.ones(4), timeout=LIMIT)
        total = result.copy()
        ar.flush(timeout=LIMIT)
        assert (total + ar.result == comm.size).all()


@pytest.mark.parametrize(
    ("argument", "other", "texts"),
    [
        ("count", 5, ("4", "5")),
        ("dtype", "float32", ("float64", "float32")),
        ("op", MPI.MAX, ("SUM", "MAX")),
        ("policy", pc.Quorum(1), ("Solo()", "Quorum(k=1")),
        ("algorithm", "rabenseifner", ("ring", "rabenseifner")),
        ("late", "drop", ("accumulate", "drop")),
        ("missed", "latest", ("sum", "latest")),
        ("max_staleness", 3, ("None", "3")),
        ("history", 2, ("8", "2")),
        ("name", "mine", ("partial_allreduce[", "mine")),
    ],
)
def test_a_difference_is_told_to_all_with_both_values(comm, argument, other, texts):
    arguments = {**GOOD, argument: other} if comm.rank == ODD else GOOD
    with pytest.raises(pc.MismatchError) as caught:
        comm.partial_allreduce(**arguments)
    text = str(caught.value)
    assert argument in text
    assert f"rank {ODD}" in text
    for value in texts:
        assert value in text
    still_works(comm)


def test_policies_with_different_seeds(comm):
    with pytest.raises(pc.MismatchError, match=rf"policy: .*seed=1.* on rank {ODD}|policy: .*seed=1"):
        comm.partial_allreduce(count=1, dtype="f8", policy=pc.Majority(1 if comm.rank == ODD else 2))
    still_works(comm)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"late": "often"}, ValueError),
        ({"count": -1}, ValueError),
        ({"dtype": "object"}, TypeError),
        ({"op": MPI.MAXLOC}, ValueError),
        ({"policy": 7}, TypeError),
        ({"policy": pc.Quorum(1000)}, ValueError),
        ({"algorithm": "magic"}, ValueError),
        ({"missed": "sum", "op": MPI.MAX}, ValueError),
        ({"like": np.ones((4, 4))[:, 1], "count": None, "dtype": None}, BufferError),
        ({"name": 3}, TypeError),
    ],
    ids=lambda wrong: ",".join(wrong) if isinstance(wrong, dict) else wrong.__name__,
)
def test_a_mistake_of_one_rank_is_an_error_of_all(comm, wrong, error):
    """On that rank the mistake itself, on the others a MismatchError that says whose it is and what."""
    if comm.rank == ODD:
        with pytest.raises(error) as caught:
            comm.partial_allreduce(**{**GOOD, **wrong})
        assert not isinstance(caught.value, pc.MismatchError)
    else:
        with pytest.raises(pc.MismatchError, match=f"refused on rank {ODD}: {error.__name__}"):
            comm.partial_allreduce(**GOOD)
    still_works(comm)


def test_an_empty_contribution_where_others_have_elements_is_refused_before_anything_is_sent(comm):
    with comm.partial_allreduce(**GOOD, missed="sum") as ar:
        for wrong, error in [
            (np.ones(5), ValueError),
            (np.ones(4, "f4"), TypeError),
            (np.ones(8)[::2], BufferError),
            ([1.0, 2.0, 3.0, 4.0], TypeError),
            (None, TypeError),
        ]:
            with pytest.raises(error):
                ar.contribute(wrong)
        ar.flush(timeout=LIMIT)
        assert (ar.result == 0).all(), "a refused contribution was delivered"


def test_different_calls(comm):
    """One rank makes a request where the others make a collective."""
    send, recv = np.ones(4), np.ones(4)
    with pytest.raises(pc.MismatchError, match="different calls"):
        if comm.rank == ODD:
            pc.Allreduce_init(send, recv, MPI.SUM, comm)
        else:
            comm.partial_allreduce(**GOOD)
    still_works(comm)


def test_communicator_options_refused_on_one_rank():
    with pytest.raises(ValueError if WORLD.rank == ODD else pc.MismatchError, match="progress"):
        pc.Communicator(WORLD, progress="magic" if WORLD.rank == ODD else "thread")
    pc.Communicator(WORLD).close()


@pytest.mark.parametrize(
    ("variable", "value"), [("PYC_TRACE", "/no/such/folder/run.json"), ("PYC_DUMP_DIR", "/no/such/folder")]
)
def test_a_folder_that_one_rank_cannot_write_to_is_told_to_all_when_the_communicator_is_made(
    variable, value, monkeypatch
):
    with monkeypatch.context() as patched:
        if WORLD.rank == ODD:
            patched.setenv(variable, value)
        error, text = (ValueError, "") if WORLD.rank == ODD else (pc.MismatchError, f"refused on rank {ODD}: .*")
        with pytest.raises(error, match=f"{text}environment variable {variable}: expected a .*writable folder, got"):
            pc.Communicator(WORLD)
    pc.Communicator(WORLD).close()
