"""Dead ranks are replaced in an EagerOptimizer, with the model of a survivor, and no step is lost."""

from __future__ import annotations

import json

import pytest
from killer import WITH_RESPAWN, mpi_has_crashed
from launcher import launcher, mpirun
from nightly import nightly_unless

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft"),
    pytest.mark.timeout(240),  # each rank imports PyTorch, which takes long where ranks share a core
]

MEMBERS, SPARES, STEPS = 4, 2, 150


def job(policy, deaths, uniform="", spares=SPARES, **options):
    """Return the weights of each rank that has ended: the number of steps of each member, as it knows them.

    `uniform`: whether all buckets must have the same; otherwise the steps of dead ranks may differ.
    """
    outcome = mpirun(
        MEMBERS + spares,
        "torch_spares.py",
        *(spares, policy, STEPS, json.dumps(options), *deaths),
        limit=200,
        options=WITH_RESPAWN,
        PYC_STALL_WARNING="30",
    )
    assert outcome.status == 0
    ended = [rank for rank in range(2 * MEMBERS) if outcome.said(rank)]
    assert len(ended) == MEMBERS  # each dead rank is replaced
    counts = []
    for rank in ended:
        (said,) = outcome.said(rank)
        assert f"same True uniform {uniform}" in said
        counts.append([float(count) for count in said.split()[-MEMBERS:]])
        assert rank < MEMBERS or "begun at 0 " not in said
    return counts


@pytest.mark.parametrize(
    "options",
    nightly_unless(
        lambda options: options == {"sync_every": 2},
        [{}, {"sync_every": 2}, {"overlap": False, "divide_by": "contributors"}],
    ),
    ids=str,
)
@pytest.mark.parametrize("moment", nightly_unless(lambda moment: moment == 1, range(4)))
def test_a_newcomer_makes_the_steps_of_the_dead_rank(moment, options):
    """Under "full" all ranks are in the same step: the weights are those of a job without deaths, bit for bit."""
    deaths = ["0:0.2", ["2:0.2@1", "3:0.01@1", "1:0.05@1", "2:0.3@1"][moment]]
    for counts in job("full", deaths, uniform=True, **options):
        assert counts == [STEPS] * MEMBERS


@pytest.mark.nightly
def test_a_new_process_makes_the_steps_of_the_dead_rank():
    for counts in job("full", ["0:0.2", "2:0.2@1"], uniform=True, spares=0):
        assert counts == [STEPS] * MEMBERS


@pytest.mark.parametrize("options", nightly_unless(lambda options: not options, [{}, {"sync_every": 3}]), ids=str)
@pytest.mark.parametrize(
    "policy", nightly_unless(lambda policy: policy == "majority", ["majority", "solo", "quorum:2"])
)
def test_every_step_of_a_survivor_counts_once(policy, options):
    for counts in job(policy, ["0:0.2", "2:0.2@1"], **options):
        assert [counts[1], counts[3]] == [STEPS, STEPS]


@pytest.mark.nightly
def test_old_averages_may_be_dropped():
    """Under missed="latest" a model is no sum of steps."""
    job("majority", ["2:0.2"], missed="latest", sync_every=5)


@pytest.mark.nightly
def test_all_ranks_live():
    for counts in job("majority", [], uniform=True):
        assert counts == [STEPS] * MEMBERS


def train_decentralized(method, *deaths, spares=SPARES):
    """Train while ranks die, and check that all are replaced, with parameters and momentum that a survivor had."""
    outcome = mpirun(
        MEMBERS + spares,
        "torch_averaging_spares.py",
        *(spares, method, 110, *deaths),  # the last flush is long ago when they finish
        limit=200,
        options=WITH_RESPAWN,
        PYC_STALL_WARNING="30",
    )
    if mpi_has_crashed(outcome):
        pytest.skip("Open MPI itself has crashed on another rank")
    assert outcome.status == 0
    ends = f"ends with members {' '.join(map(str, range(MEMBERS)))} same True near True"
    said = [line for rank in range(MEMBERS + spares) for line in outcome.said(rank)]
    assert said.count(ends) == MEMBERS
    provided = {line.split()[1] for line in said if line.startswith("provides")}
    begun = [line.split() for line in said if line.startswith("begins at")]
    assert len(begun) == len(deaths)
    for *_, digest in begun:
        assert method == "hop" or digest in provided  # the newcomer has the model of Hop's iteration


STEPWISE = ["d-psgd", "sgp", "hop", "p-reduce"]


@pytest.mark.parametrize(
    "method", nightly_unless(lambda method: method == "d-psgd", ["ad-psgd", "a2cid2", "parameter-server", *STEPWISE])
)
def test_a_decentralized_optimizer_trains_on(method):
    """Rank 0, which would be the donor, dies in a step; then another, after flushes."""
    train_decentralized(method, "0:10:0.001", "2:60:0.001")


@pytest.mark.parametrize(
    ("method", "moment"),
    nightly_unless(
        lambda of: of in (("sgp", "110:mean"), ("hop", "39:join")),
        [(method, moment) for method in STEPWISE for moment in ("39:mean", "39:join", "110:mean", "39:0.001")],
    ),
)
def test_a_newcomer_takes_part_in_a_flush(method, moment):
    """Rank 0 or another dies when the mean is computed, when all make their collective again, or anywhere."""
    train_decentralized(method, f"{STEPWISE.index(method) % 2}:{moment}")


@pytest.mark.nightly
def test_a_new_process_trains_on():
    train_decentralized("sgp", "0:10:0.001", "2:60:0.001", spares=0)
