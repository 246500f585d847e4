"""What algorithms cost: the simulator, the times of plans, and the statements of the algorithms say the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from plans import ALGORITHMS

from pycollectives.policies import Full, Solo
from pycollectives.selection import tables
from pycollectives.selection.model import CostModel, activation_costs, schedule_costs
from pycollectives.simulation import allreduce
from pycollectives.support.costs import INFINIBAND, PRESETS, Costs
from pycollectives.support.native import core

VARIANTS = ["tree:1", "tree:3", "tree:5", "rabenseifner:1", "rabenseifner:2"]
HEADER = 40

_spec = importlib.util.spec_from_file_location("defaults", Path(__file__).parents[2] / "docs" / "defaults.py")
assert _spec is not None
assert _spec.loader is not None
defaults = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(defaults)


def simulated_seconds(algorithm, ranks, nbytes, costs, activation):
    """Until the last of all ranks, which contribute at once, has its result."""
    columns = core.simulate(
        size=ranks,
        work=np.zeros((ranks, 1)),
        calls=np.ones(ranks, dtype=np.int64),
        ending="none",
        count=allreduce.elements_of(algorithm, ranks, nbytes),
        payload_bytes=nbytes,
        algorithm=algorithm,
        activation=activation,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        reduce_per_byte=costs.reduce_per_byte,
        record=False,
        **Full().for_size(ranks).engine_arguments(),
    )
    assert len(columns["done"]) == ranks
    return columns["done"].max()


@pytest.mark.parametrize("network", PRESETS)
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, *VARIANTS])
def test_plans_take_the_time_of_the_whole_protocol(algorithm, network):
    costs = PRESETS[network]
    for ranks in (*range(2, 21), 33, 64, 100, 256):
        for nbytes, activation in ((8, "tree"), (4096, "dissemination"), (1 << 22, "tree:3")):
            simulated = simulated_seconds(algorithm, ranks, nbytes, costs, activation)
            timed = defaults.seconds_of(algorithm, ranks, nbytes, costs, activation)
            assert timed == pytest.approx(simulated, rel=1e-9), (ranks, nbytes, activation)


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "rabenseifner", "rabenseifner:2", "ring"])
def test_one_rank_stands_for_all_where_all_do_the_same(algorithm):
    for ranks in (2, 4, 8, 32, 64):
        for nbytes in (8, 1024, 1 << 20):
            count = max(1, min(core.parts_of_allreduce(algorithm, ranks), nbytes // 8))
            arguments = {"count": count, "element_bytes": nbytes / count, **loggp(INFINIBAND)}
            one, every = (
                core.time_of_plans(algorithm, ranks, one_for_all=alike, **arguments) for alike in (True, False)
            )
            assert one == pytest.approx(every, rel=1e-9), (ranks, nbytes)


def loggp(costs):
    return {
        "latency": costs.latency,
        "overhead": costs.overhead,
        "gap_per_byte": costs.gap_per_byte,
        "reduce_per_byte": costs.reduce_per_byte,
    }


@pytest.mark.parametrize("network", PRESETS)
def test_algorithms_state_the_time_of_their_plans(network):
    """Exactly where all ranks do the same; otherwise a chain may be a few sends shorter than the longest possible."""
    costs = PRESETS[network]
    for ranks in (2, 3, 4, 5, 7, 8, 12, 16, 21, 33, 64):
        for nbytes in (8, 512, 32768, 1 << 20):
            for name, stated in schedule_costs(costs, ranks, nbytes).items():
                timed = defaults.seconds_of(name, ranks, nbytes, costs)
                alike = not name.startswith("tree") and ranks & (ranks - 1) == 0
                assert stated == pytest.approx(timed, rel=1e-6 if alike else 0.2), (name, ranks, nbytes)


# ---------------------------------------------------------------------------------------- the simulator's algorithms


def test_the_simulator_simulates_the_algorithm_that_it_names():
    """16 ranks, 4 MiB: it simulated recursive doubling, whatever the name."""
    costs, size, nbytes = INFINIBAND, 16, 1 << 22
    step = costs.latency + 2 * costs.overhead + HEADER * costs.gap_per_byte
    moved = nbytes * costs.gap_per_byte
    reduced = nbytes * costs.reduce_per_byte
    parts = (size - 1) / size
    expected = {
        "recursive_doubling": 4 * (step + moved + reduced),
        "rabenseifner": 8 * step + parts * (2 * moved + reduced),
        "ring": 30 * step + parts * (2 * moved + reduced),
    }
    work = np.full((size, 1), 1e-3)
    for name, seconds in expected.items():
        summary = allreduce.simulate(work, Full(), nbytes=nbytes, algorithm=name, costs=costs)
        assert summary.latency_us_mean == pytest.approx(1e6 * seconds, rel=0.05), name


def test_what_is_too_much_to_simulate_is_refused():
    work = np.zeros((65536, 1))
    with pytest.raises(ValueError, match="algorithm 'ring' on 65536 ranks: expected at most"):
        allreduce.simulate(work, Solo(), nbytes=1 << 20, algorithm="ring")


def test_receiving_takes_the_receivers_time():
    """15 ranks send to one at once: it takes their messages one after the other."""
    seconds = simulated_seconds("tree:16", 16, 8, Costs(overhead=1.0), "tree:16")
    assert seconds >= 15 * 2 + 15  # those that ask to start, and their data; and the results sent


# ------------------------------------------------------------------------------------------------------------ auto


def test_auto_is_within_a_tenth_of_the_best():
    """A smaller grid than that of `python docs/generate.py --defaults`."""
    for cell in defaults.cells(ranks=(4, 6, 8, 13, 64, 128), sizes=(8, 4096, 262144, 1 << 22)):
        assert cell.ratio <= 1.1, cell


def test_what_auto_leaves_out_could_not_have_been_the_best():
    for cell in defaults.cells(ranks=(5, 16, 24), sizes=(8, 4096, 1 << 20)):
        assert cell.error < defaults.PRUNED, cell


def test_the_model_answers_as_a_table_does():
    model = CostModel(INFINIBAND, tables.built_in())
    assert model.choose(1, 1, 8).name == "recursive_doubling"
    assert model.choose(64, 1, 8).name == "board"
    between = model.choose(64, 16, 8)
    assert between.name == f"board+{model.choose(16, 16, 8).schedule}"
    assert between.segment_bytes == 65536
    assert model.complete(False, 8, 8, 8, schedule="ring").name == "ring"
    short, long = model.choose(64, 64, 8), model.choose(64, 64, 1 << 22)
    assert short.schedule != long.schedule
    assert model.choose(64, 64, 8, sparse=True).schedule is not None


def test_a_high_latency_makes_wide_trees():
    fast = Costs(latency=1e-6, overhead=1e-6)
    slow = Costs(latency=64e-6, overhead=1e-6)

    def width(costs):
        trees = {name: cost for name, cost in schedule_costs(costs, 4096, 8).items() if name.startswith("tree:")}
        return int(min(trees, key=trees.__getitem__).removeprefix("tree:"))

    assert width(fast) < width(slow)


def test_the_activation_follows_from_the_costs():
    costs = activation_costs(INFINIBAND, 4096)
    assert min(costs, key=costs.__getitem__).startswith("tree:")
    assert costs["dissemination"] > costs["tree:4"]


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_nothing_costs_no_more_than_an_element(ranks):
    nothing, element = schedule_costs(INFINIBAND, ranks, 0), schedule_costs(INFINIBAND, ranks, 8)
    assert nothing.keys() == element.keys()
    assert all(0 <= nothing[name] <= element[name] for name in nothing)
