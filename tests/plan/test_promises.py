"""The promises of a partial allreduce as properties of the engine's own protocol, in virtual time.

PYC_CASES says how many cases of (ranks, policy, script, order of delivery) are drawn: 1 500 by default, 10 000 for
`make test NIGHTLY=1`. PYC_MOST_RANKS says up to how many ranks, 64 by default. A failing case is printed whole, and
with a blob that repeats it: `@reproduce_failure(...)`.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import ACTIVATIONS, ALGORITHMS
from simulated import LOADS, NETWORKS, Case, Outcome

from pycollectives.policies import AUTO_GRACE
from pycollectives.support.native import core

POLICIES = ["solo", "majority", "quorum", "any_of", "all_of", "full"]
MOST_RANKS = int(os.environ.get("PYC_MOST_RANKS", "64"))
NODES = [1, 1, 2, 4, 8, 64]  # ranks each: flat, mixed with an uneven last node, one board
CASES = int(os.environ.get("PYC_CASES", "1500"))


def cases_of(share):
    return settings(
        max_examples=max(1, int(CASES * share)),
        print_blob=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


seeds = st.integers(0, 2**32 - 1)


@st.composite
def cases(draw, policy, **fixed):
    size = draw(st.integers(1, MOST_RANKS))
    values = {
        "size": size,
        "policy": policy,
        "ranks_per_node": draw(st.sampled_from(NODES)),
        "policy_size": draw(st.integers(1, size)) if policy in ("quorum", "any_of", "all_of") else 1,
        "seed": draw(seeds),
        "grace": draw(st.sampled_from([0.0, 0.5, 5.0, AUTO_GRACE])) if policy == "quorum" else 0.0,
        "late": draw(st.sampled_from(["accumulate", "accumulate", "replace", "drop"])),
        "missed": draw(st.sampled_from(["latest", "sum"])),
        "max_staleness": draw(st.sampled_from([None, None, None, 0, 1, 2, 5])),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "algorithm": draw(st.sampled_from(ALGORITHMS)),
        "history": draw(st.integers(1, 8)),
        "pipeline": draw(st.sampled_from([0, 0, 0, 1, 3])),
        "delivery_seed": draw(seeds),
        "network": draw(st.sampled_from(list(NETWORKS))),
        "load": draw(st.sampled_from(LOADS)),
        "most_calls": draw(st.integers(1, 12)),
        "uneven_calls": draw(st.booleans()),
        "ending": draw(st.sampled_from(["flush", "flush", "close", "mixed"])),
        "script_seed": draw(seeds),
    }
    case = Case(**values | fixed)
    if case.pipeline == 0 and not case.uneven_calls and draw(st.booleans()):
        # Else a rank may wait at the barrier for one that waits for its arrival.
        return replace(case, barrier=True)
    return case


# ---------------------------------------------------------------------------------------------------- all promises


@pytest.mark.timeout(max(900, CASES // 10))
@pytest.mark.parametrize("policy", POLICIES)
def test_promises(policy):
    @cases_of(1 / len(POLICIES))
    @given(cases(policy))
    def holds(case):
        Outcome(case).check()

    holds()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", range(1, MOST_RANKS + 1))
def test_promises_at_every_size(size, policy):
    """What chance might leave out."""
    for i, algorithm in enumerate(ALGORITHMS):
        case = Case(
            size,
            policy,
            ranks_per_node=NODES[(i + size // 3) % len(NODES)],
            policy_size=1 + (7 * i + size) % size,
            seed=i,
            activation=ACTIVATIONS[(i + size) % 2],
            algorithm=algorithm,
            missed=["latest", "sum"][(i + size // 2) % 2],
            most_calls=3,
            network="in any order",
            ending="mixed",
            delivery_seed=i,
            script_seed=i,
        )
        Outcome(case).check()


# ---------------------------------------------------------------------------------------------------- the oracle itself


def a_round_is_lost(o):
    row = np.flatnonzero(o.alone)[0]
    o.value[o.round[row]] = 0


def a_contribution_is_delivered_twice(o):
    value = o.value[:, 0]
    value[np.flatnonzero(value == 0)[0]] = value[np.flatnonzero(value)[0]]


def results_differ(o):
    row = np.flatnonzero(o.alone & (o.rank == o.case.size - 1))[0]
    o.result[row, 0] ^= 1


FORGERIES = {
    "agreement": results_differ,
    "agreement on contributors": lambda o: o.members.__setitem__((0, 0), ~o.members[0, 0]),
    "agreement on the initiator": lambda o: o.initiator.__setitem__(0, o.initiator[0] ^ 1),
    "exactness": a_contribution_is_delivered_twice,
    "conservation": a_round_is_lost,
    "arrival of the initiator": lambda o: o.arrival.fill(False),
    "staleness": lambda o: o.staleness.__setitem__(0, 1 + o.staleness[0]),
    "late calls wait": lambda o: o.done.__setitem__(o.late, 1 + o.done[o.late]),
    "solo calls wait": lambda o: o.done.__setitem__(0, 1 + o.done[0]),
    "a round twice": lambda o: o.new.__setitem__(1, False),
    "missed": lambda o: o.missed.__setitem__(3, 1 + o.missed[3]),
    "overrun": lambda o: o.overrun.__setitem__(0, ~o.overrun[0]),
    "included": lambda o: o.included.__setitem__(0, ~o.included[0]),
    "active": lambda o: o.active.fill(0),
}


@pytest.mark.parametrize("missed", ["latest", "sum"])
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_the_oracle_notices(forge, missed):
    outcome = Outcome(Case(4, "solo", missed=missed, load="random", most_calls=6, script_seed=1))
    assert outcome.late.any()
    outcome.check()
    forge(outcome)
    with pytest.raises(AssertionError):
        outcome.check()


def test_a_case_repeats_itself():
    case = Case(17, "quorum", policy_size=5, network="uneven", load="heavy", delivery_seed=3)
    once, again = case.run(), case.run()
    assert all(np.array_equal(once[name], again[name]) for name in once)


# ---------------------------------------------------------------------------------------------------- policies


def seen_initiators(case):
    """Return the initiators of rounds in which no rank had left, by number."""
    told = case.run(record=False, count=1, max_events=0)
    assert told["deadlock"] is None
    leaves = min(told["done"][(told["rank"] == r) & (told["call"] >= 0)].max(initial=0) for r in range(case.size))
    early = (told["done"] < leaves) & (told["call"] >= 0)
    return dict(zip(told["round"][early].tolist(), told["initiator"][early].tolist(), strict=True))


@pytest.mark.parametrize("size", [2, 3, 5, 8, 13, pytest.param(64, marks=pytest.mark.slow)])
def test_majority_chooses_uniformly(size):
    """A chi-square test; its 0.9999 quantile by Wilson and Hilferty."""
    initiators = Counter()
    for seed in range(4):
        case = Case(size, "majority", seed=seed, load="ties", most_calls=50 * size, barrier=True)
        initiators.update(seen_initiators(case).values())
    total = sum(initiators.values())
    assert total > 4 * 45 * size
    statistic = sum((initiators[rank] - total / size) ** 2 / (total / size) for rank in range(size))
    freedom = size - 1
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.719 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < quantile, initiators


@pytest.mark.parametrize("size", [2, 7, 16])
@pytest.mark.parametrize(("policy", "m"), [("majority", 1), ("any_of", 1), ("any_of", 2)])
def test_the_designated_do_not_depend_on_who_comes(policy, m, size):
    chosen: dict[int, set[int]] = {}
    for load, script in itertools.product(LOADS, range(4)):
        case = Case(size, policy, policy_size=m, seed=9, load=load, most_calls=30, script_seed=script)
        for number, initiator in seen_initiators(case).items():
            chosen.setdefault(number, set()).add(initiator)
    assert len(chosen) >= 20
    assert all(len(initiators) <= m for initiators in chosen.values())
    assert len(set().union(*chosen.values())) > size / 2


@pytest.mark.parametrize("missed", ["latest", "sum"])
@pytest.mark.parametrize("size", [1, 2, 5, 32])
def test_latency_without_costs_is_what_the_policy_waits_for(size, missed):
    """Rank r arrives r + 1 seconds after a barrier; a round takes no time."""
    steps = 6
    arrives = np.arange(1.0, size + 1)
    for k in range(1, size + 1):
        for policy in ("quorum", *(["solo"] if k == 1 else []), *(["full"] if k == size else [])):
            case = Case(size, policy, policy_size=k, load="linear", barrier=True, most_calls=steps, missed=missed)
            outcome = Outcome(case)
            outcome.check()
            waits = (outcome.done - outcome.called)[~outcome.flush].reshape(size, steps)
            assert waits == pytest.approx(np.maximum(0, k - arrives)[:, None] + np.zeros(steps))
            assert (outcome.active[~outcome.flush] == k).all()


def test_majority_waits_for_the_designated_rank():
    size, steps = 8, 20
    case = Case(size, "majority", seed=3, load="linear", barrier=True, most_calls=steps)
    outcome = Outcome(case)
    outcome.check()
    calls = ~outcome.flush
    waits = (outcome.done - outcome.called)[calls]
    assert waits == pytest.approx(np.maximum(0, outcome.initiator - outcome.rank)[calls])


def test_grace_waits_for_the_rest_but_no_longer():
    """Eight ranks arrive a second apart: two make the quorum, and two more come within the grace."""
    case = Case(8, "quorum", policy_size=2, grace=2.5, load="linear", barrier=True, most_calls=5)
    outcome = Outcome(case)
    outcome.check()
    calls = ~outcome.flush
    assert (outcome.active[calls] == 4).all()
    assert (outcome.done - outcome.called)[calls].max() == pytest.approx(1 + 2.5)
    complete = Outcome(replace(case, grace=100.0))
    complete.check()
    assert (complete.active[~complete.flush] == 8).all()
    assert (complete.done - complete.called)[~complete.flush].max() == pytest.approx(7)


# ---------------------------------------------------------------------------------------------------- liveness


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [2, 5, 8, 33, 64])
def test_solo_waits_for_no_application(size, algorithm, activation):
    """One rank goes on while all others are asleep: it waits for messages and nothing else."""
    asleep = 1e9
    work = np.full((size, 5), 1.0)
    work[1:, 0] = asleep
    told = core.simulate(
        size=size,
        work=work,
        calls=np.full(size, 5),
        algorithm=algorithm,
        activation=activation,
        latency=1.0,
        overhead=0.1,
        jitter=1.0,
        delivery_seed=size,
    )
    assert told["deadlock"] is None
    awake = (told["rank"] == 0) & (told["call"] >= 0)
    assert (told["done"] - told["called"])[awake].max() < 20 * size
    assert told["done"][awake].max() < asleep


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ending", ["flush", "close"])
@pytest.mark.parametrize("size", [2, 3, 8, 20])
def test_ranks_that_have_left_are_not_waited_for(size, ending, policy):
    """All but one leave at once, whoever is designated; the one goes on."""
    for stays in {0, 1, size - 1}:
        calls = np.zeros(size, np.int64)
        calls[stays] = 40
        told = core.simulate(
            size=size,
            work=np.ones((size, 40)),
            calls=calls,
            ending=ending,
            policy=policy,
            policy_size=size if policy in ("quorum", "all_of") else 1,
            jitter=0.5,
        )
        assert told["deadlock"] is None
        of_calls = told["call"] >= 0
        assert told["round"][of_calls].tolist() == list(range(40))
        assert (told["members"][of_calls].sum(axis=1) == 1).all()
        assert told["members"][of_calls][:, stays].all()


def test_nobody_ever_calls():
    for policy, ending in itertools.product(POLICIES, ["flush", "close"]):
        case = Case(5, policy, policy_size=2, most_calls=0, ending=ending)
        told = case.run()
        assert told["deadlock"] is None
        assert told["call"].tolist() == ([-1] * 5 if ending == "flush" else [])
        assert not told["members"].any()


# ---------------------------------------------------------------------------------------------------- memory of rounds


@pytest.mark.parametrize("history", [1, 3, 8])
@pytest.mark.parametrize("missed", ["latest", "sum"])
def test_a_sleeper_is_told_that_it_overran_and_loses_nothing(missed, history):
    """Rank 1 sleeps through 40 rounds."""
    work = np.zeros((2, 40))
    work[0] = 1.0
    work[1, 0] = 39.5
    told = core.simulate(size=2, work=work, calls=np.array([40, 2]), missed=missed, history=history)
    first, second = np.flatnonzero((told["rank"] == 1) & (told["call"] >= 0))
    assert told["late"][first]
    assert (told["round"][first], told["missed"][first], told["overrun"][first]) == (38, 38, True)
    assert (told["missed"][second], told["overrun"][second]) == (0, False)
    assert told["result"][first, 0] == (2**39 - 1 if missed == "sum" else 2**38)
    overran = np.flatnonzero(told["overrun"])
    assert overran.tolist() == [first]


@pytest.mark.parametrize("missing", range(6))
def test_overrun_begins_where_the_history_ends(missing):
    work = np.array([[1.0] * 8, [missing + 1.5] + [0.0] * 7])
    told = core.simulate(size=2, work=work, calls=np.array([8, 1]), missed="sum", history=3)
    row = np.flatnonzero(told["rank"] == 1)[0]
    assert (told["missed"][row], told["overrun"][row]) == (missing, missing > 3)
    assert told["result"][row, 0] == 2 ** (missing + 1) - 1


# ---------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16, 31, 33, 64])
def test_shapes(size, algorithm):
    """Contributions of ones: every element of every result is the number of contributions in it."""
    random = np.random.default_rng(size)
    for count in {1, 2, size - 1, size, size + 1, 1000} - {0}:
        calls = random.integers(0, 4, size)
        told = core.simulate(
            size=size, work=random.uniform(0, 2, (size, 3)), calls=calls, count=count, missed="sum", algorithm=algorithm
        )
        assert told["deadlock"] is None
        assert told["result"].shape == (calls.sum() + size, count)
        assert (told["result"] == told["result"][:, :1]).all()
        totals = np.bincount(told["rank"], weights=told["result"][:, 0], minlength=size)
        assert (totals == calls.sum()).all()


@cases_of(0.02)
@given(case=st.sampled_from(POLICIES).flatmap(lambda policy: cases(policy, missed="latest", pipeline=0)))
def test_absent_is_not_zero(case):
    """The same rounds under other operations: contributors take part with what they accumulated, nobody else does."""
    outcome = Outcome(case)
    outcome.check()
    taken = outcome.contributors > 0
    members, contributors = outcome.members[taken], outcome.contributors[taken, None]
    value = outcome.value[outcome.round][taken]  # the sum of a rank's calls in the rank's element
    alone = contributors == 1
    bits = value[:, :, None] >> np.arange(case.most_calls) & 1
    newest = np.where(members, 1 << (np.frexp(value.astype(float))[1].astype(np.int64) - 1).clip(0), 0)
    oldest = value & -value
    product = np.where(members, 1 << (bits * np.arange(case.most_calls)).sum(axis=2), 0)

    # Two contributors are 0 each in the other's element, where MIN and PROD then are 0.
    expected = {"AVG": value // contributors, "MAX": newest, "MIN": oldest * alone, "PROD": product * alone}
    for op, results in expected.items():
        assert (outcome.repeated(op=op)["result"][taken] == results).all(), op


@pytest.mark.parametrize(
    ("op", "identity"),
    [("SUM", 0), ("AVG", 0), ("PROD", 1), ("MIN", np.iinfo(np.int64).max), ("MAX", np.iinfo(np.int64).min)],
)
def test_a_flush_with_nothing_to_deliver_gives_the_identity(op, identity):
    told = core.simulate(size=3, work=np.ones((3, 2)), calls=np.full(3, 2), op=op, policy="full")
    flushes = told["call"] < 0
    assert flushes.sum() == 3
    assert (told["contributors"][flushes] == 0).all()
    assert (told["result"][flushes] == identity).all()


# ---- how many messages follow one another


@pytest.mark.parametrize("policy", ["quorum", "all_of"])
@pytest.mark.parametrize("seed", range(8))
def test_from_the_deciding_arrival_to_the_result(policy, seed):
    """The root of the activation counts arrivals: the last one reaches it, and it starts the round."""
    case = Case(
        size=8, policy=policy, policy_size=8 if policy == "all_of" else 4, seed=seed, load="linear", most_calls=1
    )
    told = case.run(latency=0.01)
    arrival = 8.0 if policy == "all_of" else 4.0  # rank r arrives at r + 1
    first = told["round"] == 0
    waited = told["done"][first & (told["called"] <= arrival)].max() - arrival
    hear, spread, reduce = 1, 1, 3  # a tree of 8 has one level, recursive doubling three steps
    assert waited == pytest.approx(0.01 * (hear + spread + reduce))
