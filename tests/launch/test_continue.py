"""With `on_failure="continue"` the survivors of deaths continue: no contribution is lost, or counted twice."""

from __future__ import annotations

import re
from itertools import product

import pytest
from killer import WITH_FAULT_TOLERANCE, mpi_has_crashed
from launcher import Outcome, launcher, mpirun
from nightly import in_turn, nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

RANKS = 5
POLICIES = ("solo", "majority", "quorum", "quorum:5", "any-of:2", "full")
AVERAGES = (
    "reduces.py smart",
    "reduces.py random:4",
    "reduces.py punctual",
    "reduces.py static:2",
    "averages.py neighbor_averaging ring",
    "averages.py push_sum one-peer-exponential",
    "averages.py push_sum star",
    "pairs.py ring",
    "pairs.py bipartite-exponential",
    "hops.py standard",
    "hops.py backup:1",
    "hops.py staleness:2",
    "hops.py notify-ack",
    "servers.py asp 1",
    "servers.py bsp 1",
    "servers.py asp node",
    "servers.py bsp node",
    "servers.py ssp:3 2",
    "servers.py bsp 2",
    "servers.py elastic:5 all",
    "servers.py asp 1f",
    "servers.py bsp nodef",
    "counts.py 7",
    "preduces.py 3",
    "preduces.py same",
    "queues.py 1",
    "queues.py 0",
)
"""Programs in which ranks die that average models."""
SHAPES = ("all", "1", "2")
DEATHS = (("0.5", (2, 0, 3)), ("0.1", (0, 4)), ("0.02", (1, 2, 4, 3)))
"""Seconds between deaths, and who dies."""


def survivors_of(job: Outcome, victims: tuple[int, ...], ranks: int) -> list[int]:
    """Return the ranks that must come to their end."""
    survivors = [rank for rank in range(ranks) if rank not in victims]
    if mpi_has_crashed(job):
        survivors = [rank for rank in survivors if "end" in job.said(rank)]
    return survivors


def check_continued(job: Outcome, victims: tuple[int, ...], ranks: int = RANKS) -> None:
    """Fail unless the survivors came to their end with the same members, rounds, and totals of missed="sum"."""
    survivors = survivors_of(job, victims, ranks)
    assert "Traceback" not in job.err, job
    assert "at the end" not in job.err, job
    seen: dict[str, str] = {}
    for rank in survivors:
        members, _, rounds, lost, end = job.said(rank)
        for number, digest in (each.split("=") for each in rounds.split()[1:]):
            assert seen.setdefault(number, digest) == digest, f"round {number} differs on rank {rank}: {job}"
        assert end == "end", job
        assert members == f"members: {' '.join(map(str, survivors))}", job
        dead = " ".join(str(each) for each in range(ranks) if each not in survivors)
        assert lost == f"lost: {dead}" or lost.endswith("or more"), job  # they died before it was made
    assert len({job.said(rank)[1] for rank in survivors}) <= 1, job


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 0, range(5)))
@pytest.mark.parametrize(
    ("policy", "case"), in_turn(POLICIES, [(shape, death) for shape in SHAPES for death in DEATHS])
)
def test_contributions_are_delivered_once(tmp_path, policy, case, seed):
    shape, (apart, victims) = case
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": shape, "PYTHONHASHSEED": "0"}
    missed = "latest" if seed % 3 == 2 else "sum"
    job = mpirun(
        *(RANKS, "continues.py", policy, missed, apart, 40, seed, *victims),
        limit=90,
        options=WITH_FAULT_TOLERANCE,
        **options,
    )
    check_continued(job, victims)


@pytest.mark.parametrize(
    ("program", "case"),
    in_turn(AVERAGES, [(shape, death) for shape in SHAPES for death in (("0.5", (2, 0, 3)), ("0.1", (0, 4)))]),
)
def test_models_stay_whole(tmp_path, program, case):
    """tests/chaos has more jobs of this kind."""
    shape, (apart, victims) = case
    job = mpirun(
        *(RANKS, *program.split(), apart, 40, SHAPES.index(shape), *victims),
        limit=90,
        options=WITH_FAULT_TOLERANCE,
        DEATH=str(tmp_path / "d"),
        PYC_RANKS_PER_NODE=shape,
    )
    survivors = survivors_of(job, victims, RANKS)
    for rank in survivors:
        assert job.said(rank) == [f"members: {' '.join(map(str, survivors))}", "end"], job


def test_a_survivor_that_computes_is_named(tmp_path):
    """The others run into their limit; their contributions are delivered once all the same."""
    job = mpirun(4, "continues_late.py", limit=60, options=WITH_FAULT_TOLERANCE, DEATH=str(tmp_path / "d"))
    for rank in (0, 2, 3):
        *stalled, total, end = job.said(rank)
        assert (total, end) == ("total: 2 1 2 2", "end"), job
        if rank == 3:
            continue
        assert stalled[0].endswith("The data is contributed: do not contribute it again"), job
        says = r"rank 1 died, and the others continue: not complete after .* have not made a call on it: rank 3\. "
        assert any(re.search(says + "Repeat a call on this communicator", each) for each in stalled), job


@pytest.mark.parametrize(
    ("method", "victims"),
    nightly_unless(
        {("eager-sgd", (0, 3)), ("ad-psgd", (2,)), ("parameter-server", (0, 3))}.__contains__,
        product(
            ["eager-sgd", "p-reduce", "d-psgd", "sgp", "ad-psgd", "a2cid2", "hop", "parameter-server"], [(2,), (0, 3)]
        ),
    ),
)
def test_models_stay_equal(tmp_path, method, victims):
    job = mpirun(
        *(4, "torch_continues.py", method, 1, *victims),
        limit=90,
        options=WITH_FAULT_TOLERANCE,
        DEATH=str(tmp_path / "d"),
    )
    survivors = survivors_of(job, victims, 4)
    for rank in survivors:
        assert len(job.said(rank)) == 3, job
        members, loss, end = job.said(rank)
        assert members == f"members: {' '.join(map(str, survivors))}", job
        error, same = re.fullmatch(r"loss: ([\d.]+) same: (\w+)", loss).groups()
        assert float(error) < 0.5, job
        assert same == "True", job
        assert end == "end", job
