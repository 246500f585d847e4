"""Histories of a parameter server in virtual time: every synchronization, any speeds, workers that leave and come back.

What must hold of each history is in server_oracle; here is what each kind of synchronization promises besides. Numbers
of ElasticBSP are in test_parameter_server_elastic.
"""

import math
import os
import random

import pytest
from server_oracle import Replay, Script, random_script, run

import pycollectives as pc

CASES = int(os.environ.get("PYC_CASES", "600"))


def of(history, what, column):
    """A column of all entries of a kind; the first is their time."""
    return [entry[1 + column] for entry in history["entries"] if entry[0] == what]


def before_absences(history):
    """The history until a worker ends or is missing for the first time."""
    names = [*(entry[0] for entry in history["entries"]), "left"]
    cut = next(index for index, name in enumerate(names) if name in ("left", "missing"))
    return {**history, "entries": history["entries"][:cut]}


def verdicts(history):
    return set(of(history, "push", 5))


# --- What each kind promises of a history


def check_bsp(history, script, _):
    """Each update is the mean of one gradient of each worker; all are let go when the last has come."""
    for terms in of(history, "update", 2):
        assert {delay for _, _, delay, _ in terms} == {0}
        assert len({worker for worker, *_ in terms}) == len(terms)
        assert {weight for *_, weight in terms} == {1 / len(terms)}
    history = before_absences(history)
    assert verdicts(history) <= {"used"}
    for number, terms in enumerate(of(history, "update", 2)):
        assert [term[:2] for term in terms] == [(worker, number) for worker in range(script.workers)]


def check_asp(history, script, _):
    """Each gradient is an update, and nobody waits."""
    assert not any(of(history, "release", 3))
    check_single_updates(history, script)


def check_single_updates(history, script):
    """Each gradient is an update of weight 1, unless it is from before its worker's return."""
    assert all(len(terms) == 1 and terms[0][3] == 1 for terms in of(history, "update", 2))
    assert history["gathered"] == []
    replay = Replay(script.workers)
    returned = [0] * script.workers
    version = 0
    for entry in history["entries"]:
        replay.add(entry)
        if entry[0] == "present":
            returned[entry[2]] = version
        version += entry[0] == "update"
        if entry[0] == "push":
            assert (entry[6] == "used") == (entry[4] >= returned[entry[2]])


def check_ssp(history, script, sync):
    check_single_updates(history, script)
    check_bound(history, sync.s, sync.s)


def check_dssp(history, script, sync):
    check_single_updates(history, script)
    check_bound(history, sync.lo, sync.hi)


def check_bound(history, low, high):
    """Who is let go is at most `high` pushes ahead of the slowest; who waits is more than `low` ahead.

    A worker that comes back is taken for as far as the slowest of the others.
    """
    replay = Replay(len(history["clocks"]))
    progress = [0] * len(history["clocks"])
    now = 0.0
    for entry in history["entries"]:
        least = min((progress[worker] for worker in replay.present), default=0)
        if entry[1] > now:
            assert all(progress[w] > least + low for w in replay.present if replay.waits[w])
            now = entry[1]
        replay.add(entry)
        if entry[0] in ("update", "superstep"):
            continue
        worker = entry[2]
        if entry[0] == "present":
            others = [progress[other] for other in replay.present if other != worker]
            progress[worker] = min(others, default=progress[worker])
        elif entry[0] == "push":
            progress[worker] += 1
        elif entry[0] == "release":
            assert progress[worker] - least <= high


def check_elastic(history, script, sync):
    """Barriers are no later than the lookahead, and who waits has made the push of the barrier."""
    check_single_updates(history, script)
    replay = Replay(script.workers)
    begun, predicted = [0] * script.workers, None
    changed = False
    for entry in history["entries"]:
        replay.add(entry)
        if entry[0] == "superstep":
            assert changed or all(clock <= at + sync.lookahead for clock, at in zip(entry[5], predicted, strict=True))
            begun, predicted, changed = entry[5], None, False
        elif entry[0] in ("present", "missing", "left"):
            changed = True
        elif predicted is None and all(replay.clock[w] >= begun[w] + 2 for w in replay.present):
            predicted = [*replay.clock]
        if entry[0] == "release" and entry[4] > 0 and not changed:
            assert predicted is None  # all are let go together
            assert entry[3] == begun[entry[2]]


def check_ringmaster(history, script, sync):
    assert not any(of(history, "release", 3))
    for delay, verdict in zip(of(history, "push", 4), of(history, "push", 5), strict=True):
        assert verdict == ("used" if delay < sync.limit else "discarded")
    assert all(len(terms) == 1 and terms[0][2] < sync.limit and terms[0][3] == 1 for terms in of(history, "update", 2))
    assert history["gathered"] == []
    assert script


def check_rennala(history, script, sync):
    assert not any(of(history, "release", 3))
    for delay, verdict in zip(of(history, "push", 4), of(history, "push", 5), strict=True):
        assert verdict == ("discarded" if delay else "used")
    for terms in of(history, "update", 2):
        assert [term[2:] for term in terms] == [(0, 1 / sync.batch)] * sync.batch
    assert len(history["gathered"]) < sync.batch
    assert script


def check_ringleader(history, script, _):
    """Delays are at most 2n - 2; each worker has the same weight; n updates a round."""
    n = script.workers
    assert not any(of(history, "release", 3))
    for terms in of(history, "update", 2):
        assert max(delay for _, _, delay, _ in terms) <= max(2 * n - 2, 0)
        of_worker = {}
        for worker, _, _, weight in terms:
            of_worker.setdefault(worker, []).append(weight)
        for weights in of_worker.values():
            assert sum(weights) == pytest.approx(1 / len(of_worker))
            assert len(set(weights)) == 1
    updates = 0
    for entry in history["entries"]:
        updates += entry[0] == "update"
        if entry[0] == "superstep":
            assert updates <= n
            updates = 0
    history = before_absences(history)
    assert verdicts(history) <= {"used"}
    assert all({worker for worker, *_ in terms} == {*range(n)} for terms in of(history, "update", 2))
    assert len(of(history, "update", 2)) // n == len(of(history, "superstep", 0))


def check_rescaled(history, script, _):
    """A gradient's weight is its worker's interval over the mean of those that are known."""
    assert not any(of(history, "release", 3))
    replay = Replay(script.workers)
    pusher = 0
    for entry in history["entries"]:
        if entry[0] == "update":
            known = [max(replay.interval[w], 1e-9) for w in replay.present if replay.interval[w] is not None]
            assert [worker for worker, *_ in entry[3]] == [pusher]
            assert entry[3][0][3] == pytest.approx(max(replay.interval[pusher], 1e-9) * len(known) / sum(known))
        replay.add(entry)
        if entry[0] == "push":
            pusher = entry[2]


def check_mindflayer(history, script, sync):
    """An update is the mean of what has come of a superstep's trials; nobody makes more."""
    for terms in of(history, "update", 2):
        assert {term[2:] for term in terms} == {(0, 1 / len(terms))}
    for entry in history["entries"]:
        if entry[0] == "push" and script.latency == 0 and script.gives_up:
            assert (entry[6] == "given up") == (script.work[entry[2]][entry[3]] > sync.seconds[0])
        if entry[0] == "push" and not script.gives_up:
            seconds = script.work[entry[2]][entry[3]] + 2 * script.latency
            assert entry[6] == "discarded" or (entry[6] == "used" and seconds <= sync.seconds[0] + 1e-9)
    before = [0] * script.workers
    for clocks in of(before_absences(history), "superstep", 4):
        assert clocks == [clock + sync.trials[0] for clock in before]
        before = clocks
    if script.latency == 0 and script.gives_up:
        assert verdicts(before_absences(history)) <= {"used", "given up"}


CHECKS = {
    "bsp": (check_bsp, lambda draw, patience: pc.servers.BSP(patience=patience)),
    "asp": (check_asp, lambda draw, patience: pc.servers.ASP()),
    "eamsgd": (check_asp, lambda draw, patience: pc.servers.EAMSGD(10, 0.1)),
    "ssp": (check_ssp, lambda draw, patience: pc.servers.SSP(draw.randint(0, 6), patience=patience)),
    "dssp": (check_dssp, lambda draw, patience: random_dssp(draw, patience)),
    "elastic": (check_elastic, lambda draw, patience: random_elastic(draw, patience)),
    "ringmaster": (check_ringmaster, lambda draw, patience: pc.servers.Ringmaster(draw.randint(1, 12))),
    "rennala": (check_rennala, lambda draw, patience: pc.servers.Rennala(draw.randint(1, 12))),
    "ringleader": (check_ringleader, lambda draw, patience: pc.servers.Ringleader(patience=patience)),
    "rescaled": (check_rescaled, lambda draw, patience: pc.servers.Rescaled()),
    "mindflayer": (check_mindflayer, lambda draw, patience: random_mindflayer(draw, patience)),
}


def random_dssp(draw, patience):
    low = draw.randint(0, 4)
    return pc.servers.DSSP(low, low + draw.randint(0, 12), patience=patience)


def random_elastic(draw, patience):
    predict = draw.choice(["push", "superstep"])
    if draw.random() < 0.3:
        return pc.servers.ElasticBSP(
            draw.randint(1, 20), predict=predict, objective="waiting-per-time", patience=patience
        )
    algorithm = draw.choice(["linear", "zipline", "zipline_opt", "zipline_opt_bs", "grid_scan", "full_grid_scan"])
    return pc.servers.ElasticBSP(draw.randint(1, 20), algorithm, predict=predict, patience=patience)


def random_mindflayer(draw, patience):
    return pc.servers.MindFlayer(draw.randint(1, 5), draw.choice([0.5, 1.0, 2.0, 20.0]), patience=patience)


# --- Many histories


@pytest.mark.parametrize("kind", CHECKS)
def test_many_histories(kind):
    """Random in everything; the seed is in the failure's text."""
    check, make = CHECKS[kind]
    for case in range(CASES // 3):
        draw = random.Random(f"{kind} {case}")
        sync = make(draw, draw.choice([1.5, 10.0, 10.0, math.inf]))
        script = random_script(draw, sync)
        if min(script.vanishes) < script.columns and getattr(sync, "patience", 0) == math.inf:
            script.vanishes = [script.columns] * script.workers  # that would be waiting for ever, as was asked for
        print("seed", kind, case, sync)
        check(run(sync, script), script, sync)


# --- By hand


def releases(history, worker):
    """When a worker is let go, and how long it has waited."""
    return [(entry[1], entry[4]) for entry in history["entries"] if entry[0] == "release" and entry[2] == worker]


def test_bsp_is_serial_training_bit_for_bit():
    """On gradients that depend on the weights, of workers whose order of pushing changes."""
    draw = random.Random(5)
    values = [[draw.uniform(-1, 1) for _ in range(50)] for _ in range(7)]
    work = [[draw.uniform(0.1, 10) for _ in range(50)] for _ in range(7)]
    history = run(pc.servers.BSP(patience=math.inf), Script(work, values, slope=-0.3))
    weights, expected = 0.0, []
    for step in range(50):
        mean = 0.0
        for worker in range(7):
            mean += (1 / 7) * (values[worker][step] - 0.3 * weights)
        weights += mean
        expected.append(weights)
    assert of(history, "update", 1) == expected
    ends = [sum(max(row[step] for row in work) for step in range(k + 1)) for k in range(50)]
    assert of(history, "update", 0) == pytest.approx(ends)


def test_ssp_lets_the_fastest_go_when_the_slowest_has_pushed():
    history = run(pc.servers.SSP(2), Script([[1.0] * 6, [4.0] * 6]))
    assert releases(history, 0) == [(1, 0), (2, 0), (4, 1), (8, 3), (12, 3), (16, 3)]
    assert sum(waited for _, waited in releases(history, 1)) == 0


def test_dssp_waits_where_it_costs_least():
    """The slow worker pushes every 1.5 s. Of 0 to 3 more iterations of 1 s, 2 end when it pushes."""
    script = Script([[1.0] * 12, [1.5] * 12])
    assert {waited for _, waited in releases(run(pc.servers.SSP(0), script), 0)} == {0.5}
    found = releases(run(pc.servers.DSSP(0, 3), script), 0)
    assert found[:7] == [(1.5, 0.5), (2.5, 0), (3.5, 0), (4.5, 0), (5.5, 0), (6.5, 0), (7.5, 0)]
    assert {waited for _, waited in found[7:]} == {0.5}  # 3 ahead


def test_ringleader_uses_gradients_of_its_round_several_times():
    """The second worker pushes after 2.4 and 4.8 s; the first after each second."""
    history = run(
        pc.servers.Ringleader(), Script([[1.0] * 5, [2.4] * 5], [[1, 2, 3, 4, 5], [10, 20, 0, 0, 0]], pushes=[5, 2])
    )
    terms = [[term[:2] for term in each] for each in of(history, "update", 2)]
    assert terms == [
        [(0, 0), (0, 1), (1, 0)],
        [(0, 0), (0, 1), (0, 2), (1, 0)],
        [(0, 3), (1, 1)],
        [(0, 3), (0, 4), (1, 1)],
    ]
    means = [(1.5 + 10) / 2, (2 + 10) / 2, (4 + 20) / 2, (4.5 + 20) / 2]
    assert of(history, "update", 1) == pytest.approx([sum(means[: k + 1]) for k in range(4)])


def test_mindflayer_gives_up():
    """Trials of 2 s: what would take 50 s is given up, and the others are averaged."""
    work = [[1.0, 50.0, 1.0, 1.0], [1.0, 1.0, 50.0, 50.0]]
    history = run(pc.servers.MindFlayer(2, 2.0), Script(work, [[1, 2, 3, 4], [5, 6, 7, 8]]))
    assert of(history, "update", 1) == pytest.approx([(1 + 5 + 6) / 3, (1 + 5 + 6) / 3 + (3 + 4) / 2])
    assert of(history, "superstep", 0) == pytest.approx([3, 7])


def test_mindflayer_goes_on_without_an_update_if_nothing_has_come():
    history = run(pc.servers.MindFlayer(2, 2.0), Script([[50.0, 50.0, 1.0, 1.0]] * 2))
    assert len(of(history, "superstep", 0)) == 2
    assert len(of(history, "update", 0)) == 1
    assert history["clocks"] == [4, 4]


@pytest.mark.parametrize("text", ["bsp", "ssp", "dssp", "elastic", "ringleader", "mindflayer"])
def test_a_worker_that_vanishes_is_taken_out(text):
    """Its last sign was at 5 s, when it was let go; intervals are 1 s."""
    sync = {
        "bsp": pc.servers.BSP(patience=10),
        "ssp": pc.servers.SSP(2),
        "dssp": pc.servers.DSSP(1, 3),
        "elastic": pc.servers.ElasticBSP(4),
    }.get(text)
    sync = sync or {"ringleader": pc.servers.Ringleader(), "mindflayer": pc.servers.MindFlayer(2, 2.0)}[text]
    script = Script([[1.0] * 40] * 3, vanishes=[40, 5, 40])
    history = run(sync, script)
    missing = [entry for entry in history["entries"] if entry[0] == "missing"]
    assert missing[0][2] == 1
    assert len(missing) == 1
    allowed = 10 * (2 if text == "mindflayer" else 1)
    assert 5 + allowed <= missing[0][1] <= 6 + allowed
    assert history["clocks"] == [40, 5, 40]


def test_elastic_bsp_misses_a_worker_while_it_monitors():
    """Barriers are at 3, 6, ... s. The worker has pushed once after the first of them."""
    history = run(pc.servers.ElasticBSP(4), Script([[1.0] * 40] * 3, vanishes=[40, 4, 40]))
    assert [entry[1:] for entry in history["entries"] if entry[0] == "missing"] == [(14.0, 1)]
    assert of(history, "superstep", 4)[1:3] == [[15, 4, 15], [18, 4, 18]]


def test_elastic_bsp_waits_for_who_has_come_back():
    """The third worker leaves at 3 s, is back at 4 s, and pushes at 14 s; the barrier would have been at 10.15 s."""
    script = Script([[1.0] * 30, [1.45] * 30, [1.0] * 3 + [10.0] + [1.0] * 26], absences=[(2, 2, 1.0)])
    history = run(pc.servers.ElasticBSP(10), script)
    assert of(history, "superstep", 0)[0] == pytest.approx(14)
    assert of(history, "superstep", 4)[0] == [10, 7, 4]


@pytest.mark.parametrize("sync", [pc.servers.BSP(), pc.servers.SSP(2, patience=math.inf)], ids=repr)
def test_without_end_of_patience_all_wait(sync):
    history = run(sync, Script([[1.0] * 40] * 3, vanishes=[40, 5, 40]), stuck="0, 2")
    assert max(history["clocks"]) < 10


def test_nobody_is_missing_within_a_second():
    """Intervals are 1 ms; a worker that sleeps for 0.9 s is waited for, one that sleeps for 1.1 s is not."""
    for sleep, missing in ((0.9, 0), (1.1, 1)):
        history = run(pc.servers.BSP(patience=10), Script([[1e-3] * 30, [1e-3] * 3 + [sleep] + [1e-3] * 26]))
        assert [entry[0] for entry in history["entries"]].count("missing") == missing


def test_a_missing_worker_comes_back():
    """Its gradient is discarded under BSP; then it takes part again."""
    work = [[1.0] * 30, [1.0] * 3 + [20.0] + [1.0] * 26]
    history = run(pc.servers.BSP(patience=10), Script(work))
    names = [entry[0] for entry in history["entries"]]
    assert names.count("missing") == 1
    assert names[names.index("present") + 1] == "push"
    assert [push[1:3] for push in pushes_of(history) if push[-1] == "discarded"] == [(1, 3)]
    workers = [len(terms) for terms in of(history, "update", 2)]
    assert workers[:3] == [2, 2, 2]
    assert workers[3:].count(2) > 10


def pushes_of(history):
    return [entry[1:] for entry in history["entries"] if entry[0] == "push"]


def test_ssp_does_not_wait_for_what_an_absent_worker_has_missed():
    """A worker that was away for 20 pushes of the other is 2 pushes behind at most when it is back."""
    history = run(pc.servers.SSP(2), Script([[1.0] * 60] * 2, absences=[(1, 9, 20.0)]))
    assert max(waited for _, waited in releases(history, 0)) <= 1
    assert history["clocks"] == [60, 60]
