"""What a training keeps if a rank dies in the middle of a call; real ranks die in launch/test_train_survives.py."""

import re
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.support import launchers
from pycollectives.testing import run_ranks
from pycollectives.train import job, reductions, survivors
from pycollectives.train.control import ControlChannel
from pycollectives.train.curve import Curve
from pycollectives.train.loop import Training
from pycollectives.train.models.hyperplane import Hyperplane
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice
from pycollectives.train.replica import Replica, Step
from pycollectives.train.settings import Settings
from pycollectives.train.summary import Totals
from pycollectives.train.synchronizers import METHODS, Synchronizer

DEATH = MPI.Exception(MPI.ERR_PROC_FAILED)
SMALL = Settings.of({"data": "hyperplane,dimensions=3,points=64,validation=8", "model": "hyperplane", "batch": 8})


class Broken:
    """A communicator of two ranks, whose collective calls write something and then fail."""

    size = 2

    def Allreduce(self, values, out, op=None):  # noqa: N802
        out = values if values is not MPI.IN_PLACE and out is MPI.IN_PLACE else out
        out[...] = 7.0
        raise DEATH


class Deceiving:
    """A communicator of two ranks, whose collective calls succeed with wrong data because a rank died in them."""

    size, rank = 2, 1

    def Allreduce(self, values, out, op=None):  # noqa: N802
        out[...] = 7

    def Bcast(self, values, root):  # noqa: N802
        values[...] = 7

    def Get_failed(self):  # noqa: N802
        return MPI.COMM_SELF.Get_group()


class Reported:
    """A communicator whose MPI reports these deaths."""

    def __init__(self, *dead):
        self.dead = list(dead)
        self._engine = self

    def acknowledge_failed(self):
        return self.dead


@pytest.fixture
def comm():
    with pc.Communicator(MPI.COMM_SELF) as made:
        yield made


def made():
    plan = job.Plan.of(SMALL, rank=0, ranks=1)
    model = Hyperplane(plan.dataset, seed=1)
    return plan, model, OPTIMIZERS.make(Choice.parse("sgd,rate=0.01,momentum=0.9"), model.weights, lambda number: 1.0)


def test_an_average_that_fails_changes_nothing():
    weights = np.arange(4, dtype=np.float32)
    with pytest.raises(MPI.Exception):
        reductions.average(Broken(), weights)
    np.testing.assert_array_equal(weights, range(4))


@pytest.mark.parametrize("call", ["average", "broadcast", "gathered", "reduced"])
def test_what_a_call_returns_although_a_rank_died_is_not_used(monkeypatch, call):
    monkeypatch.setenv(launchers.FAULT_TOLERANT, "1")
    given = np.arange(4, dtype=np.float32) if call in ("average", "broadcast") else 3
    with pytest.raises(MPI.Exception) as caught:
        getattr(reductions, call)(Deceiving(), given)
    assert caught.value.Get_error_class() == MPI.ERR_PROC_FAILED
    if call in ("average", "broadcast"):
        np.testing.assert_array_equal(given, range(4))


def test_training_leaves_reductions_and_gathers_to_one_module():
    """Those of mpi4py for objects wait on a communicator that no survivor revokes, or return wrong data."""
    folder = Path(reductions.__file__).parent
    calls = re.compile(r"comm\.((all)?(reduce|gather)|bcast|(ex)?scan)\(|comm\.(Allgather|Gather|Bcast)")
    without = {folder / "reductions.py", folder / "torch_models" / "parallel.py"}  # that one ends if a rank dies
    assert not [path for path in {*folder.rglob("*.py")} - without if calls.search(path.read_text())]


def test_a_model_keeps_its_weights_while_others_are_scored(tmp_path):
    """Also if a rank dies between two scores."""
    plan, model, _ = made()
    curve = Curve(tmp_path, model, 1, lambda: 1.0)
    for number in range(3):
        model.weights[:] = number
        curve(Step(number, 1.0, 0.0, 0.0, 1, False, 0))
    model.weights[:] = 9
    asked = []

    def is_stopped():
        asked.append(None)
        if len(asked) == 2:
            raise DEATH
        return False

    with pytest.raises(MPI.Exception):
        curve.score(plan.dataset.validation, is_stopped)
    assert (model.weights == 9).all()
    assert curve.score(plan.dataset.validation, lambda: False)
    assert (model.weights == 9).all()
    assert len(curve.points) == 3


class DiesAfterUpdate(Synchronizer):
    """The wait after the update of step 2 fails."""

    def update(self, model, optimizer, number):
        optimizer.update(model.weights, model.gradient, number)
        if number == 2:
            raise DEATH


def test_an_update_before_a_failed_wait_counts_as_a_step(comm):
    """Otherwise the survivors would apply it again."""
    plan, model, optimizer = made()
    training = Training(plan.steps)
    replica = Replica(model, optimizer, DiesAfterUpdate())
    control = ControlChannel(comm)
    with pytest.raises(MPI.Exception):
        training.run(control, replica, plan.batches, lambda number, begin: None)
    assert training.number == 3


@pytest.mark.parametrize(
    ("method", "ranks", "options"),
    [
        ("eager,policy=quorum:4", 3, {"policy": pc.Quorum(3)}),
        ("eager,policy=quorum:2", 3, {"policy": "quorum:2"}),
        ("eager,policy=quorum:4:auto", 3, {"policy": pc.Quorum(3, "auto")}),
        ("eager,policy=any-of:4", 3, {"policy": "any-of:3"}),
        ("eager,policy=majority", 3, {"policy": "majority"}),
        ("eager", 3, {}),
        ("m-synchronous,m=4", 1, {"m": 1}),
        ("ripples,size=4", 3, {"size": 3}),
        ("parameter-server,servers=4", 3, {"servers": 3}),
        ("parameter-server,servers=node", 3, {"servers": "node"}),
        ("hop", 3, {}),
    ],
)
def test_options_for_fewer_ranks(method, ranks, options):
    choice = Choice.parse(method)
    assert METHODS.find(choice).for_fewer(ranks, **choice.options) == options


def test_means_over_ranks_stay_when_ranks_are_lost():
    now = [5.0]
    totals = Totals(lambda: now[0], 4)
    totals.load_state({"elapsed_s": np.array(1.0), "ranks": np.array(2), **{k: np.array(8.0) for k in Totals.NAMES}})
    totals.among(1)
    totals.settle(MPI.COMM_SELF)
    assert set(totals.sums.values()) == {4.0}
    assert totals.elapsed_s == 1.0, "no step was taken"
    totals(Step(0, 1.0, 0.0, 0.0, 1, False, 0))
    totals.settle(MPI.COMM_SELF)
    assert (totals.sums["steps"], totals.elapsed_s) == (5.0, 5.0)
    assert int(totals.state()["ranks"]) == 1
    now[0] = 600.0
    totals.settle(MPI.COMM_SELF)
    assert totals.elapsed_s == 5.0, "no step was taken since"


def test_which_errors_are_deaths(monkeypatch):
    monkeypatch.setattr(survivors, "REPORT_S", 0.05)
    monkeypatch.setattr(survivors, "SOON_S", 0.0)
    alive, dead = Reported(), Reported(1)
    assert survivors.is_death(pc.RankFailedError("died", [1]), alive)
    assert survivors.is_death(DEATH, alive)
    assert survivors.is_death(MPI.Exception(MPI.ERR_REVOKED), alive)
    for error in (MPI.Exception(MPI.ERR_OTHER), pc.RankFailedError("has left"), pc.StallError("stalls")):
        assert not survivors.is_death(error, alive)
        assert survivors.is_death(error, dead)
    assert not survivors.is_death(ValueError("wrong"), alive)
    assert survivors.is_death(UnpicklingError("wrong data"), dead)


def test_an_error_in_a_handler_of_the_program_is_no_death():
    try:
        raise pc.RankFailedError("died", [1])
    except pc.RankFailedError as outer:
        try:
            raise ValueError("wrong")
        except ValueError as error:
            assert not survivors.is_death(error, Reported(), outer)
            assert survivors.is_death(error, Reported())


@pytest.mark.parametrize(
    ("on_failure", "text"),
    [
        ("continue", "this job ends when a rank dies; start it with Open MPI 5"),
        ("stop", "expected one of raise, continue; got 'stop'"),
    ],
)
def test_what_cannot_continue_is_refused(comm, on_failure, text):
    with pytest.raises(ValueError, match=text):
        job.run(SMALL, comm, on_failure=on_failure)


def test_threads_of_one_process_cannot_continue():
    def train(comm):
        with pytest.raises(ValueError, match="threads of one process die together"):
            job.run(SMALL, comm, on_failure="continue")

    run_ranks(1, train)
