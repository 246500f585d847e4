"""The check of Table 1 at run time: a worker whose neighbors are not where its rules of waiting would have them."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _testing, topology
from pycollectives.hop.gaps import gap_bounds
from pycollectives.support.native import core
from pycollectives.testing import run_ranks

INTO, OUT_OF = 1, 2
"""The in-neighbor of rank 0 and its out-neighbor, in a directed ring of three."""

RING = pc.topology.Topology(3, [(0, OUT_OF), (OUT_OF, INTO), (INTO, 0)])
FAR = 40
MODES = [
    pc.hop.Standard(),
    pc.hop.NotifyAck(),
    pc.hop.BackupWorkers(1),
    pc.hop.BoundedStaleness(0),
    pc.hop.BoundedStaleness(3),
]
MODES += [pc.hop.Hybrid(1, 2)]


def worker_of(mode, max_ig, **options):
    return _testing.LoneHopWorker(
        in_neighbors=[INTO], out_neighbors=[OUT_OF], max_ig=max_ig, **mode.engine_arguments(1), **options
    )


def go_to(worker, iteration):
    while (reached := worker.go_on()) < iteration:
        pass
    assert reached == iteration


def bound_of(mode, max_ig, neighbor):
    """Table 1 for that edge alone."""
    if neighbor == INTO:
        return mode.bound_by_updates
    return gap_bounds(RING, pc.hop.NotifyAck() if mode.acknowledges else pc.hop.BackupWorkers(1), max_ig)[0, OUT_OF]


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("max_ig", [1, 2, 5])
@pytest.mark.parametrize("slow", [INTO, OUT_OF])
@pytest.mark.parametrize("at", [0, 7])
def test_a_rank_that_is_further_ahead_than_it_may_be(mode, max_ig, slow, at):
    """One neighbor stays in iteration `at`; the other is far ahead."""
    worker = worker_of(mode, max_ig)
    worker.enter(slow, at)
    worker.enter({INTO: OUT_OF, OUT_OF: INTO}[slow], at + FAR)
    bound = bound_of(mode, max_ig, slow)
    if bound > FAR:
        assert (slow, mode.backup_of(0)) == (INTO, 1)
        go_to(worker, at + FAR)
        return
    go_to(worker, at + int(bound))
    text = (
        f"'driven': rank 0 is in iteration {at + bound + 1:.0f}, its {'in' if slow == INTO else 'out'}-neighbor {slow} "
        f"in iteration {at}: expected a gap of at most {bound:.0f}"
    )
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        worker.go_on()


@pytest.mark.parametrize("left", [INTO, OUT_OF])
def test_a_neighbor_that_has_left_bounds_nothing(left):
    worker = worker_of(pc.hop.Standard(), 2)
    worker.leave(left, 0)
    worker.enter({INTO: OUT_OF, OUT_OF: INTO}[left], FAR)
    go_to(worker, FAR)


def test_without_checks_nothing_is_checked():
    go_to(worker_of(pc.hop.Standard(), 2, checks=False), FAR)


@pytest.mark.parametrize("check", [False, True])
def test_checks_of_the_communicator_are_those_of_hop(check, monkeypatch):
    given, made = [], core.Hop

    def make(*arguments, checks, **options):
        given.append(checks)
        return made(*arguments, checks=checks, **options)

    monkeypatch.setattr(core, "Hop", make)
    run_ranks(2, lambda comm: comm.hop(np.zeros(1), topology=topology.ring(2)).leave(), check=check)
    assert given == [check] * 2
