"""Where every rank has a core: costs that are measured or given, and what "auto" makes of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.selection import tables
from pycollectives.selection.choice import Row, SelectionTable
from pycollectives.selection.model import CostModel
from pycollectives.support.costs import INFINIBAND, PRESETS, TCP_10GBIT
from pycollectives.support.native import core
from pycollectives.support.nodes import Place, has_core_per_rank
from pycollectives.testing import run_ranks


@pytest.fixture(autouse=True)
def _no_table(tmp_path, monkeypatch):
    monkeypatch.delenv("PYC_SELECTION", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def communicators(costs, ranks_per_node=1):
    engines = core.Engine.loopback(len(costs))
    return [
        pc.Communicator._from_engine(engine, ranks_per_node=ranks_per_node, timeout=60.0, costs=of_rank)
        for engine, of_rank in zip(engines, costs, strict=True)
    ]


def test_messages_are_timed_over_the_engines_transport():
    engines = core.Engine.loopback(4)
    found = [None] * 4

    def measure(rank):
        found[rank] = core.measure_messages(engines[rank], other=2, timeout=60.0)

    threads = [threading.Thread(target=measure, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90.0)
    assert None not in found
    assert len(set(found)) == 1
    latency, overhead, gap_per_byte = found[0]
    assert latency > 0
    assert overhead > 0
    assert gap_per_byte >= 0
    comms = [pc.Communicator._from_engine(engine, timeout=60.0) for engine in engines]
    assert run_ranks(comms, total) == [4.0] * 4  # nothing of it is left on the way


def test_timing_waits_no_longer_than_asked_for():
    engines = core.Engine.loopback(2)
    with pytest.raises(pc.StallError, match=r"rank 1 did not answer within 0\.05 s"):
        core.measure_messages(engines[0], other=1, timeout=0.05)


def total(comm):
    return float(comm.partial_allreduce(count=64, dtype="f8", policy=pc.Full()).allreduce(np.ones(64))[0][-1])


@pytest.mark.parametrize("network", PRESETS)
@pytest.mark.parametrize("count", [1, 1000, 100000])
def test_auto_is_the_cheapest_and_right(network, count):
    def program(comm):
        assert comm.costs == PRESETS[network]
        ar = comm.partial_allreduce(count=count, dtype="f8", policy=pc.Full())
        return ar.algorithm, float(ar.allreduce(np.ones(count))[0][-1])

    model = CostModel(PRESETS[network], tables.built_in())
    expected = model.choose(5, 5, 8 * count).name
    assert run_ranks(communicators([PRESETS[network]] * 5), program) == [(expected, 5.0)] * 5


def test_between_boards_too():
    def program(comm):
        return comm.partial_allreduce(count=8, dtype="f8", policy="solo").algorithm

    model = CostModel(INFINIBAND, tables.built_in())
    assert run_ranks(communicators([INFINIBAND] * 4, 2), program) == [model.choose(4, 2, 64).name] * 4


def test_a_table_that_was_made_here_comes_first():
    table = SelectionTable((Row("rabenseifner"),))
    with tables.using(table):
        assert tables.is_tuned()
        assert tables.for_costs(INFINIBAND) is table
    assert not tables.is_tuned()
    assert tables.for_costs(None) is tables.built_in()


def test_ranks_with_different_costs_are_told():
    def program(comm):
        with pytest.raises(pc.MismatchError) as caught:
            comm.partial_allreduce(count=4, dtype="f8", policy="solo")
        return str(caught.value)

    said = run_ranks(communicators([INFINIBAND, INFINIBAND, TCP_10GBIT]), program)
    assert "selection_table: cost model" in said[0]


def test_a_variant_can_be_asked_for():
    def program(comm):
        ar = comm.partial_allreduce(count=8, dtype="f8", policy=pc.Full(), algorithm="tree:2")
        return ar.algorithm, float(ar.allreduce(np.ones(8))[0][0])

    assert run_ranks(5, program, ranks_per_node=1) == [("tree:2", 5.0)] * 5


@pytest.mark.parametrize("activation", ["dissemination", "tree", "tree:3"])
def test_an_activation_can_be_asked_for(activation):
    def program(comm):
        ar = comm.partial_allreduce(count=8, dtype="f8", policy="quorum", missed="sum", activation=activation)
        result = ar.allreduce(np.ones(8))[0][0]
        ar.flush()
        return ar.activation, float(result + ar.result[0])

    assert run_ranks(5, program, ranks_per_node=1) == [(activation, 5.0)] * 5


def test_activations_have_their_own_schedules():
    """On the root, which sends to other ranks in each."""

    def program(comm):
        names = ("dissemination", "tree", "tree:1")
        made = [comm.partial_allreduce(count=8, dtype="f8", policy="solo", activation=name) for name in names]
        return [ar._collective.schedule.dot() for ar in made]

    assert len(set(run_ranks(5, program, ranks_per_node=1)[0])) == 3


def test_the_activation_must_be_the_same_on_all_ranks():
    def program(comm):
        names = ["tree", "dissemination", "tree"]
        with pytest.raises(pc.MismatchError, match="activation: tree on ranks 0, 2, dissemination on rank 1"):
            comm.partial_allreduce(count=8, dtype="f8", activation=names[comm.rank])

    run_ranks(3, program, ranks_per_node=1)


@pytest.mark.parametrize(
    "name", ["", "bush", "tree:", "tree:0", "tree:K", "dissemination:2", "auto:2", f"tree:{2**31}"]
)
def test_no_such_activation(name):
    def program(comm):
        with pytest.raises(ValueError, match="activation: expected 'auto', 'dissemination', 'tree' or 'tree:K'"):
            comm.partial_allreduce(count=8, dtype="f8", activation=name)
        with pytest.raises(TypeError, match="activation: expected a name such as 'auto', got 3"):
            comm.partial_allreduce(count=8, dtype="f8", activation=3)

    run_ranks(1, program)


@pytest.mark.parametrize("name", ["tree:", "tree:0", "ring:2", "tree:K"])
def test_no_such_variant(name):
    def program(comm):
        with pytest.raises(ValueError, match="tree:K; got"):
            comm.partial_allreduce(count=8, dtype="f8", algorithm=name)

    run_ranks(1, program, ranks_per_node=1)


def test_cores_are_counted_by_kernel_whatever_the_containers():
    places = [Place("k:pid:[1]:0", 1, 0, 0b11), Place("k:pid:[2]:0", 1, 0, 0b11), Place("k:pid:[2]:0", 2, 0, 0b11)]
    assert has_core_per_rank(places[:2])
    assert not has_core_per_rank(places)
    bound = [place._replace(cores=1 << number) for number, place in enumerate(places)]
    assert has_core_per_rank(bound)
    assert Place.decode(bound[2].encode()) == bound[2]


@pytest.mark.parametrize("costs", [(-1.0,), (float("nan"),), (float("inf"),), ("1",)])
def test_what_is_no_cost_is_refused(costs):
    with pytest.raises(ValueError, match="costs: expected seconds"):
        pc.Costs(*costs)


def test_a_rank_that_stops_timing_messages_ends_the_wait_of_all():
    """Rank 1 does not answer rank 0, whose time is up; rank 2 waits for what is measured, with much more time."""
    engines = core.Engine.loopback(3)
    errors = {}

    def measure(rank, timeout):
        try:
            core.measure_messages(engines[rank], other=1, timeout=timeout)
        except pc.StallError as error:
            errors[rank] = str(error)

    threads = [threading.Thread(target=measure, args=of_rank) for of_rank in ((0, 0.3), (2, 60))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert "rank 1 did not answer within 0.3 s" in errors[0]
    assert "gave up" in errors[2]
