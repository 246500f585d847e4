"""Spares and new processes take the numbers of dead ranks in all services that average models."""

from __future__ import annotations

import pytest
from killer import WITH_RESPAWN
from launcher import launcher, mpirun
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

MEMBERS, STEPS = 4, 80
SERVICES = [
    ("partial_reduce", "smart"),
    ("partial_reduce", "static:2"),
    ("neighbor_averaging", "ring"),
    ("push_sum", "one-peer-exponential"),
    ("hop", "standard"),
    ("hop", "backup:1"),
    ("pairwise_averaging", "ring"),
    ("parameter_server", "bsp"),
]
IN_CI = SERVICES[1], SERVICES[3], SERVICES[5], SERVICES[6], SERVICES[7]


def job(spares, service, option, *deaths, members=MEMBERS, **env):
    """Return the job. All numbers are there at its end, and each newcomer has begun with a donor's model."""
    outcome = mpirun(
        members + spares,
        "averaging_spares.py",
        *(spares, service, option, STEPS * (2 if service == "parameter_server" else 1), *deaths),  # its steps are short
        limit=60,
        options=WITH_RESPAWN,
        PYC_STALL_WARNING="20",
        **env,
    )
    assert outcome.status == 0
    numbers = "ends with members " + " ".join(map(str, range(members)))
    ended = [rank for rank in range(members + spares) if numbers in outcome.said(rank)]
    assert len(ended) == members
    said = [line for rank in range(members + spares) for line in outcome.said(rank)]
    provided = {line.split()[1] for line in said if line.startswith("provides ")}
    begun = [line.split() for line in said if line.startswith("begins at ")]
    assert len(begun) == len(deaths)
    assert all(digest in provided for *_, digest in begun)
    assert any(int(step) > 0 for *_, step, _, _ in begun)
    return outcome


@pytest.mark.parametrize("ranks_per_node", nightly_unless(lambda shape: shape == "2", ["1", "2", "all"]))
@pytest.mark.parametrize(("service", "option"), nightly_unless(IN_CI.__contains__, SERVICES))
def test_ranks_are_replaced(service, option, ranks_per_node):
    """Two die one after the other: rank 0, which would be the donor, and another."""
    job(2, service, option, "0:0:0.15", "2:1:0.15", PYC_RANKS_PER_NODE=ranks_per_node)


@pytest.mark.nightly
@pytest.mark.parametrize(("service", "option"), SERVICES)
def test_new_processes_replace_them(service, option):
    job(0, service, option, "0:0:0.15", "2:1:0.15")


@pytest.mark.nightly
@pytest.mark.parametrize(("service", "option"), SERVICES)
def test_all_but_one_die(service, option):
    job(2, service, option, "0:0:0.15", "2:0:0.15", members=3)
