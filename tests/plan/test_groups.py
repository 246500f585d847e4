"""Group generators: the protocol as properties of random histories in virtual time, and its mutants.

PYC_CASES says how many histories are drawn: one in two of it, which is 1 500 by default and 10 000 for `make test
NIGHTLY=1`. A failing one is named by its generator and seed: `Case(generator, seed).findings()` repeats it.
"""

from __future__ import annotations

import os
import random

import pytest
from group_history import FLAWS, GENERATORS, Case, Literal, Watched

from pycollectives.support.native import core

CASES = max(len(GENERATORS), int(os.environ.get("PYC_CASES", "1500")) // 2)


def members(grants):
    return [grant.members for grant in grants]


# ---------------------------------------------------------------------------------------------------- random histories


@pytest.mark.timeout(max(300, CASES // 10))
@pytest.mark.parametrize("generator", GENERATORS)
def test_histories(generator):
    for seed in range(CASES // len(GENERATORS)):
        found = Case(generator, seed).findings()
        assert found == [], f"Case({generator!r}, {seed}): {found[:5]}"


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("workers", [1, 2, 3, 64, 1024])
def test_histories_at_the_limits(generator, workers):
    case = Case(generator, workers)
    case.workers = workers
    case.node_of = [worker // 8 for worker in range(workers)]
    case.steps = [2] * workers
    case.factor = [1.0 + worker % 3 for worker in range(workers)]
    assert case.findings() == []


def test_the_same_seed_gives_the_same_groups():
    def groups(seed):
        machine = core.GroupGenerator([0] * 16, seed=seed)
        return [members(machine.request(worker)) for worker in range(16)]

    assert groups(1) == groups(1) != groups(2)


def test_groups_are_the_same_on_every_platform():
    machine = core.GroupGenerator([0] * 8, seed=7, global_division=True)
    assert members(machine.request(0)) == PINNED


PINNED = [(2, 3, 5), (0, 4, 6), (1, 7)]

# ---------------------------------------------------------------------------------------------------- against the paper


@pytest.mark.parametrize("seed", range(100))
def test_it_starts_what_the_paper_s_lock_vector_and_queue_start(seed):
    """Queues per worker are another way to say the same: group by group, event by event."""
    rng = random.Random(seed)
    workers = rng.randint(2, 20)
    ours, literal = core.GroupGenerator([0] * workers), Literal(workers, 3, seed)
    running, asking = {}, set()

    def note(grants, others):
        assert [(*g,) for g in others] == [(g.sequence, g.members, g.initiator, g.conflicts) for g in grants]
        running.update({(member, g.sequence): g for g in grants for member in g.members})

    for _ in range(300):
        assert ours.locks == tuple(literal.lock)
        can_acknowledge = sorted(key for key in running if key[0] in asking)
        may_ask = sorted(set(range(workers)) - asking)
        if can_acknowledge and (not may_ask or rng.random() < 0.6):
            worker, sequence = rng.choice(can_acknowledge)
            del running[worker, sequence]
            asking.discard(worker)
            note(ours.acknowledge(worker, sequence), literal.acknowledge(worker, sequence))
        elif may_ask:
            worker = rng.choice(may_ask)
            asking.add(worker)
            if literal.buffer[worker]:
                note(ours.request(worker), literal.request(worker))
            else:
                group = [worker, *rng.sample(sorted(set(range(workers)) - {worker}), rng.randint(0, workers - 1))]
                note(ours.propose(worker, group), literal.take(worker, group))


def findings_of(flaw, seed):
    case = Case("random", seed)
    return case.findings(Literal(case.workers, case.size, seed, flaw))


@pytest.mark.parametrize("seed", range(100))
def test_the_paper_s_machine_is_accepted(seed):
    assert findings_of(None, seed) == []


@pytest.mark.parametrize("flaw", FLAWS)
def test_mutants_are_rejected(flaw):
    assert any(findings_of(flaw, seed) for seed in range(30))


# ---------------------------------------------------------------------------------------------------- Fig. 8


def test_fig_8():
    machine = core.GroupGenerator([0] * 8, group_buffer=False)
    (first,) = machine.propose(0, [0, 4, 5])
    assert machine.propose(7, [4, 5, 7]) == []
    assert machine.locks == (True, False, False, False, True, True, False, False)
    assert machine.describe() == (
        "group 0 of workers 0, 4, 5 runs: not asked for by 4, 5; not acknowledged by 0\n"
        "group 1 of workers 4, 5, 7 waits for group 0"
    )
    for worker in (4, 5):
        machine.propose(worker, [worker])
    assert machine.acknowledge(0, first.sequence) == []
    assert machine.acknowledge(4, first.sequence) == []
    (second,) = machine.acknowledge(5, first.sequence)
    assert (second.members, second.conflicts, second.initiator) == ((4, 5, 7), 1, 7)
    assert [second.answers(member) for member in second.members] == [False, False, True]


# ---------------------------------------------------------------------------------------------------- requests


def test_with_the_buffer_a_request_takes_the_group_that_is_there():
    machine = core.GroupGenerator([0] * 4)
    (grant,) = machine.propose(0, [0, 1])
    assert machine.request(1) == []
    assert machine.is_asking(1)
    assert machine.groups_of(1) == [0]
    assert grant.answers(1)
    machine.acknowledge(1, 0)
    assert not machine.is_asking(1)


def test_without_it_a_request_makes_a_group_and_the_worker_performs_both():
    machine = core.GroupGenerator([0] * 4, group_buffer=False)
    machine.propose(0, [0, 1])
    assert machine.propose(1, [1, 2]) == []
    assert machine.groups_of(1) == [0, 1]
    (grant,) = machine.acknowledge(1, 0)
    assert machine.is_asking(1)
    assert (grant.answers(1), grant.answers(2)) == (True, False)


def test_one_worker_is_answered_at_once():
    for options in GENERATORS.values():
        machine = core.GroupGenerator([0], **options)
        for _ in range(3):
            (grant,) = machine.request(0)
            assert grant.members == (0,)
            machine.acknowledge(0, grant.sequence)


def test_who_leaves_is_in_no_new_group_but_in_those_that_are_there():
    machine = core.GroupGenerator([0] * 3)
    (first,) = machine.propose(0, [0, 1, 2])
    machine.leave(1)
    machine.acknowledge(1, first.sequence)
    machine.acknowledge(0, first.sequence)
    machine.request(2)
    machine.acknowledge(2, first.sequence)
    (second,) = machine.request(0)
    assert second.members == (0, 2)
    machine.request(2)
    for worker in (0, 2):
        machine.acknowledge(worker, second.sequence)
        assert not machine.finished
        machine.leave(worker)
    assert machine.finished
    assert machine.describe() == ""


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        (lambda m: m.request(4), "expected a worker from 0 to 3, got 4"),
        (lambda m: m.request(-1), "got -1"),
        (lambda m: m.acknowledge(9, 0), "got 9"),
        (lambda m: m.request(0), "worker 0 has not acknowledged group 0, which answers its last request"),
        (lambda m: m.leave(0), "has not acknowledged"),
        (lambda m: m.acknowledge(0, 1), "acknowledges group 1, which it is not in now"),
        (lambda m: m.acknowledge(3, 0), "which it is not in now"),
        (lambda m: m.acknowledge(1, 0), "without a request"),
        (lambda m: (m.acknowledge(0, 0), m.acknowledge(0, 0)), "which it is not in now"),
        (lambda m: (m.leave(3), m.request(3)), "worker 3 has left"),
        (lambda m: (m.leave(3), m.leave(3)), "worker 3 has left"),
        (lambda m: (m.leave(3), m.propose(2, [2, 3])), "worker 3 has left: it is in no new group"),
        (lambda m: m.propose(2, [3]), "expected a group with the initiator 2, got 3"),
        (lambda m: m.propose(2, [2, 3, 3]), "expected different members, got 2, 3, 3"),
        (lambda m: m.propose(1, [1, 2]), "worker 1 is answered by group 0, which it is in already"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(misuse, says):
    machine = core.GroupGenerator([0, 0, 1, 1])
    machine.propose(0, [0, 1])
    before = machine.describe()
    with pytest.raises(ValueError, match=says):
        misuse(machine)
    if says.startswith(("expected", "got", "worker 1")):
        assert (machine.describe(), machine.generated) == (before, 1)


@pytest.mark.parametrize(
    ("node_of", "options", "says"),
    [
        ([], {}, "at least one worker"),
        ([1, 0], {}, "numbered in the order"),
        ([0, 2], {}, "numbered in the order"),
        ([0, 0], {"size": 1}, "group size >= 2, got 1"),
        ([0, 0], {"global_division": True, "group_buffer": False}, "needs the group buffer"),
        ([0, 0], {"inter_intra": True}, "needs the global division"),
        ([0, 0], {"punctual": True, "global_division": True}, "not both"),
        ([0, 0], {"connectivity": -1}, "connectivity >= 0"),
        ([0, 0], {"tolerance": float("nan")}, "tolerance"),
    ],
)
def test_options_that_contradict_each_other(node_of, options, says):
    with pytest.raises(ValueError, match=says):
        core.GroupGenerator(node_of, **options)


# ---------------------------------------------------------------------------------------------------- which groups


def test_a_division_gives_every_idle_worker_one_group():
    for workers in range(1, 40):
        for size in range(2, 9):
            groups = members(core.GroupGenerator([0] * workers, size=size, global_division=True).request(0))
            assert sorted(worker for group in groups for worker in group) == list(range(workers))
            assert all(2 <= len(group) <= size + 1 for group in groups) or workers == 1


def test_inter_intra_makes_two_groups_for_each():
    """Fig. 12: heads between nodes and the rest within, then each node together."""
    node_of = [worker // 4 for worker in range(16)]
    for seed in range(20):
        machine = core.GroupGenerator(node_of, seed=seed, global_division=True, inter_intra=True)
        inter = members(machine.request(0))
        between = [group for group in inter if len({node_of[worker] for worker in group}) > 1]
        heads = [worker for group in between for worker in group]
        assert sorted(node_of[head] for head in heads) == [0, 1, 2, 3]
        assert sorted(worker for group in inter for worker in group) == list(range(16))
        assert machine.generated == len(inter) + 4
        assert [len(machine.groups_of(worker)) for worker in range(16)] == [2] * 16


def test_who_is_behind_is_left_out_by_the_initiator():
    machine = core.GroupGenerator([0] * 4, global_division=True, slowdown_threshold=3)
    for _ in range(3):
        (grant,) = machine.propose(0, [0])
        machine.acknowledge(0, grant.sequence)
    assert members(machine.request(0)) == [(0,)]  # 4 requests, the others none
    assert sorted(worker for group in members(machine.request(1)) for worker in group) == [1, 2, 3]


def run_alone(machine, worker, times):
    for asked, done in times:
        (grant,) = machine.propose(worker, [worker], asked)
        machine.acknowledge(worker, grant.sequence, done)


def test_a_punctual_group_is_of_those_due():
    machine = core.GroupGenerator([0] * 4, size=2, punctual=True)
    for worker, interval in enumerate([1.0, 1.0, 6.0, 1.5]):
        run_alone(machine, worker, [(interval, interval), (2 * interval, 2 * interval)])
    (grant,) = machine.request(0, 3.0)  # 1 is due at 3, 3 at 4.5, 2 at 18
    assert grant.members == (0, 1)


def test_a_punctual_worker_waits_for_the_first_to_be_due():
    machine = core.GroupGenerator([0] * 3, size=3, punctual=True)
    for worker, interval in enumerate([1.0, 1.7, 6.0]):
        run_alone(machine, worker, [(interval, interval), (2 * interval, 2 * interval)])
    assert members(machine.request(0, 4.5)) == [(0, 1)]  # due at 5.1


def test_a_punctual_worker_goes_alone_rather_than_wait_for_a_straggler():
    machine = core.GroupGenerator([0] * 2, size=2, punctual=True)
    run_alone(machine, 0, [(1.0, 1.0), (2.0, 2.0)])
    run_alone(machine, 1, [(6.0, 6.0), (12.0, 12.0)])
    assert members(machine.request(0, 13.0)) == [(0,)]
    machine.acknowledge(0, machine.generated - 1, 13.0)
    assert members(machine.request(0, 17.5)) == [(0, 1)]


def test_components_are_bridged():
    """Two pairs that only ever meet themselves: the next group joins them."""
    machine = core.GroupGenerator([0] * 4, size=2, connectivity=2)
    for _ in range(4):
        for pair in ((0, 1), (2, 3)):
            (grant,) = machine.propose(pair[0], pair)
            machine.request(pair[1])
            for worker in pair:
                machine.acknowledge(worker, grant.sequence)
    (grant,) = machine.request(0)
    assert set(grant.members) in ({0, 2}, {0, 3})


def test_what_is_watched_is_found():
    """The checker itself, on a history made by hand."""
    watched = Watched(core.GroupGenerator([0] * 4))
    (grant,) = watched.machine.propose(0, [0, 1])
    watched.watch([grant])
    watched.watch([grant])
    assert len(watched.findings) == 3
