"""Forecasts of all methods from step times, against values computed by hand, and the advice."""

import json
import threading

import numpy as np
import pytest
from click.testing import CliRunner

import pycollectives as pc
from pycollectives import groups
from pycollectives.__main__ import main
from pycollectives.hop import modes
from pycollectives.servers import sync
from pycollectives.simulation import workload
from pycollectives.simulation.advice import advice, forecasts
from pycollectives.testing import run_ranks

NEVER_WAIT = ("solo", "ad-psgd", "a2cid2", "asp", "rescaled", "ringleader")


def by_method(work):
    return {each.method: each for each in forecasts(work)}


def one_slow(factor=4.0, ranks=8, steps=60):
    return workload.make("one-slow", ranks=ranks, calls=steps, work=0.1, skew=0.0, seed=1, factor=factor)


def test_equal_ranks():
    found = by_method(np.full((4, 20), 0.5))
    slower = ("p-reduce random", "rennala:4")  # groups wait for each other; late gradients are discarded
    assert all((each.steps_per_s == pytest.approx(8)) != (name in slower) for name, each in found.items())
    assert "Stay synchronous: ranks wait 0% of the time" in advice(list(found.values()))


def test_values_computed_by_hand():
    """One of two ranks takes twice as long in every step. The fast rank makes its 8 steps in 8 s."""
    found = by_method(np.array([[1.0] * 8, [2.0] * 8]))
    assert [found[name].steps_per_s for name in NEVER_WAIT] == pytest.approx([12 / 8] * len(NEVER_WAIT))
    assert found["synchronous"].steps_per_s == found["bsp"].steps_per_s == pytest.approx(8 / 8)
    # Under D-PSGD the fast rank needs the slow one's step before: it makes its steps at 1, 2, 4, 6 and 8 s.
    assert found["d-psgd ring"].steps_per_s == pytest.approx((5 + 4) / 8)
    assert found["sgp one-peer-exponential"].steps_per_s == pytest.approx((4 + 4) / 8)
    assert [found[name].averaged for name in ("synchronous", "d-psgd ring", "hop ring standard")] == [2, 2, 2]
    assert found["solo"].speedup == pytest.approx(1.5)


def test_the_age_of_gradients_computed_by_hand():
    """Until 8 s, 3 of the fast worker's 8 gradients miss one update, and the slow worker's 3 gradients miss 2 each."""
    found = by_method(np.array([[1.0] * 8, [2.25] * 8]))
    assert found["asp"].staleness == pytest.approx((3 * 1 + 3 * 2) / (8 + 3))


@pytest.mark.parametrize("load", ["one-late", "lognormal", "cloud", "random-slow", "speeds"])
def test_no_method_is_faster_than_ranks_that_never_wait(load):
    work = workload.make(load, ranks=8, calls=100, work=0.1, skew=0.03, seed=3)
    found = by_method(work)
    most = sum((row.cumsum() <= work.sum(axis=1).min() * (1 + 1e-9)).sum() for row in work) / work.sum(axis=1).min()
    assert all(each.steps_per_s <= most * (1 + 1e-9) for each in found.values())
    assert all(found[name].steps_per_s == pytest.approx(most) for name in NEVER_WAIT)
    k = [found[f"quorum:{k}"] for k in (4, 6, 7)]
    assert [each.speedup for each in k] == sorted((each.speedup for each in k), reverse=True)
    assert [each.averaged for each in k] == sorted(each.averaged for each in k)


def test_a_rank_that_is_always_slow():
    """Any quorum but the synchronous one does without it, so the largest is advised."""
    found = forecasts(one_slow())
    assert advice(found).startswith('policy="quorum:7" is 3.62 times as fast as the synchronous method.')
    assert "7.0 of 8 ranks" in advice(found)


def test_two_ranks_of_which_one_is_slow():
    """A quorum of one of two is solo's; nothing else is worth it."""
    assert 'policy="quorum:1"' in advice(forecasts(one_slow(ranks=2)))


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (np.ones((1, 5)), "2 or more ranks"),
        (np.ones((2, 0)), "got shape"),
        (np.ones(4), "got shape"),
        (np.array([[1.0, -1.0], [1.0, 1.0]]), "finite seconds >= 0"),
        (np.array([[1.0, np.inf], [1.0, 1.0]]), "finite seconds >= 0"),
        (np.array([[0.0, 0.0], [1.0, 1.0]]), "a rank without work"),
        (np.array([[1.0, 1.0], [9.0, 9.0]]), "expected more steps: the fastest rank makes all 2"),
    ],
)
def test_work_that_is_refused(work, says):
    with pytest.raises(ValueError, match=says):
        forecasts(work)


def test_the_command(tmp_path):
    path = tmp_path / "steps.csv"
    np.savetxt(path, one_slow().T, delimiter=",", header="seconds")
    done = CliRunner().invoke(main, ["advise", str(path)])
    assert done.exit_code == 0, done.output
    assert "quorum:7" in done.output
    assert "p-reduce smart" in done.output
    assert "memory" in done.output
    assert "…" not in done.output, "it fits into 80 columns"
    lines = CliRunner().invoke(main, ["advise", str(path), "--json"]).output.splitlines()
    assert {json.loads(line)["method"] for line in lines} >= {"synchronous", "solo", "hop ring standard", "elastic:15"}


def test_a_file_that_the_command_refuses(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("0.1\n0.2\n")
    done = CliRunner().invoke(main, ["advise", str(path)])
    assert done.exit_code == 1
    assert "2 or more ranks" in done.output


def test_a_discarded_gradient_is_no_step():
    """Rennala's update of two gradients needs two of the newest weights.

    The fast worker alone makes updates 1 to 4, at 2, 4, 6 and 8 s; the slow one's gradients, at 2.5, 5 and 7.5 s, are
    each of weights that are no longer the newest.
    """
    found = by_method(np.array([[1.0] * 8, [2.5] * 8]))
    assert found["rennala:2"].steps_per_s == pytest.approx(8 / 8)
    assert found["rennala:2"].averaged == 2
    assert found["asp"].steps_per_s == pytest.approx((8 + 3) / 8)


def test_a_slow_rank_of_hop_skips_iterations():
    """The others do not wait for it, and its skipped iterations are not counted."""
    found = by_method(one_slow())
    free = 7 * 60 + 60 / 4
    assert found["hop ring skip:10"].steps_per_s == pytest.approx(free / 6, rel=0.05)
    assert found["hop ring skip:10"].steps_per_s > 3 * found["hop ring standard"].steps_per_s
    assert found["hop ring hybrid:1:5"].steps_per_s >= found["hop ring staleness:5"].steps_per_s
    assert found["hop ring notify-ack"].steps_per_s <= found["hop ring standard"].steps_per_s


def test_punctual_groups_do_not_wait_for_a_slow_rank():
    found = by_method(one_slow())
    assert found["p-reduce punctual"].steps_per_s > 2 * found["p-reduce static"].steps_per_s
    assert found["p-reduce static"].speedup == pytest.approx(1, rel=0.1)


def test_every_kind_of_method_is_there():
    """But for those whose parameters depend on the problem: EAMSGD's alpha, MindFlayer's seconds."""
    names = {each.method for each in forecasts(np.ones((8, 20)))}
    servers = {type(sync.parse(name)) for name in names if name.split(":")[0] in SERVERS}
    assert servers == {*subclasses(sync.Synchronization)} - {sync.Patient, sync.EAMSGD, sync.MindFlayer}
    hop = {type(modes.parse(name.removeprefix("hop ring "))[0]) for name in names if name.startswith("hop ")}
    assert hop == {*subclasses(modes.Mode)}
    generators = {name.removeprefix("p-reduce ") for name in names if name.startswith("p-reduce")}
    assert generators == {*groups.GENERATORS, "static"}
    allreduce = {name.split(":")[0] for name in names} & {"solo", "majority", "quorum", "any-of", "all-of"}
    assert len(allreduce) == 5
    assert {"ad-psgd", "a2cid2", "d-psgd ring", "sgp one-peer-exponential"} < names


SERVERS = ("bsp", "asp", "ssp", "dssp", "elastic", "ringmaster", "rennala", "ringleader", "rescaled")


def subclasses(kind):
    return {kind for base in kind.__subclasses__() for kind in (base, *subclasses(base))}


COUNT = 1 << 19
ARRAY = 4 * COUNT
LIMIT = 60.0


def allocated(make, *, use=lambda made, x: None, ranks=4):
    """The most that a rank's part of a service takes, in copies of an array of 2 MiB."""

    def program(comm):
        x = np.ones(COUNT, np.float32)
        with make(comm, x) as made:
            use(made, x)
            return made.statistics().memory_bytes / ARRAY

    return max(run_ranks(ranks, program))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("d-psgd ring", lambda comm, x: comm.neighbor_averaging(x, topology="ring")),
        ("sgp one-peer-exponential", lambda comm, x: comm.push_sum(x, topology="one-peer-exponential")),
        ("ad-psgd", lambda comm, x: comm.pairwise_averaging(x, topology="ring")),
        ("a2cid2", lambda comm, x: comm.pairwise_averaging(x, topology="ring", acceleration="a2cid2")),
        ("hop ring backup:1", lambda comm, x: comm.hop(x, topology="ring", mode="backup:1")),
        ("asp", lambda comm, x: comm.parameter_server(x, sync="asp", update=pc.servers.SGD(1.0), servers="node")),
    ],
)
def test_memory_is_what_a_service_allocates(name, make):
    """The rest is of a constant size: 0.2 of this array."""
    forecast = by_method(np.ones((4, 10)))[name].memory
    assert forecast <= allocated(make) < forecast + 0.2


def test_groups_of_a_node_take_slots_of_constant_size():
    taken = allocated(
        lambda comm, x: comm.partial_reduce(x, groups="smart"), use=lambda made, x: made.average(x, timeout=LIMIT)
    )
    assert by_method(np.ones((4, 10)))["p-reduce smart"].memory == 0
    assert 0 < taken * ARRAY < 600e3


def test_memory_of_a_partial_allreduce_is_greater_if_ranks_fall_behind():
    equal, unequal = by_method(np.ones((4, 10))), by_method(one_slow(ranks=4))
    assert [found["quorum:3"].memory for found in (equal, unequal)] == [6, 36]
    assert {found["synchronous"].memory for found in (equal, unequal)} == {6}
    ended = threading.Event()

    def alone(made, x):
        """Rank 0 makes all its rounds before the others make their first."""
        for _ in range(24 if made.comm.rank == 0 else 1):
            assert made.comm.rank == 0 or ended.wait(LIMIT)
            made.contribute(x).wait(timeout=LIMIT)
        if made.comm.rank == 0:
            ended.set()
        made.flush(timeout=LIMIT)

    solo = allocated(lambda comm, x: comm.partial_allreduce(x, policy="solo", missed="sum"), use=alone)
    assert 1 < solo <= unequal["solo"].memory
