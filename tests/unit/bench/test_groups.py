"""The parts of bench/groups.py that need no MPI: generators, slowdowns, timelines, audits, records, figures."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import audit, output, policies  # noqa: E402
from common.audit import Sync, SyncHistory, audit_syncs, spread  # noqa: E402
from common.averaging import Run  # noqa: E402
from common.cells import GroupCell, Setting, group_record, modelled_speedup  # noqa: E402
from common.patterns import Model, initial_value  # noqa: E402
from common.timing import Timeline, Window  # noqa: E402
from common.workload import parse_slowdown, seconds_of, show_slowdown  # noqa: E402

# --- the command line ---


def test_the_allreduce_is_always_measured_first_and_nothing_twice():
    assert policies.parse_generators("smart, random,smart") == ["allreduce", "smart", "random"]
    assert policies.parse_generators("random,allreduce") == ["allreduce", "random"]
    assert policies.parse_generators("all") == list(policies.GENERATORS)
    with pytest.raises(ValueError, match="'clever'"):
        policies.parse_generators("clever")


@pytest.mark.parametrize("ranks", [1, 2, 3, 16])
def test_every_generator_can_be_built_and_makes_sense_for_its_workers(ranks):
    for name in policies.GENERATORS:
        generator = policies.build_generator(name, ranks=ranks, ranks_per_node=2, seed=3)
        assert (generator is None) == (name == "allreduce")
        if generator is not None:
            generator.check(ranks)
            assert generator.kind == name.partition("-")[0]


def test_slowdowns():
    assert parse_slowdown("") == {}
    assert parse_slowdown("3:5,1:0.5") == {3: 5.0, 1: 0.5}
    assert show_slowdown({3: 5.0, 1: 0.5}) == "1:0.5,3:5"
    assert show_slowdown({}) == "none"
    assert seconds_of({1: 2.0}, ranks=3, compute=0.2) == pytest.approx([0.2, 0.6, 0.2])
    for text in ("3", "3:", "x:2", "-1:2", "3:-1", "3:nan", "3:5,3:2"):
        with pytest.raises(ValueError, match=r"RANK:FACTOR|twice"):
            parse_slowdown(text)


# --- timelines ---


def regular(period: float, computing: float, until: float) -> Timeline:
    """Iterations without end that last `period`, until one spans `until`."""
    ends = np.arange(1, int(until / period) + 2) * period
    return Timeline(ends - period + computing, ends)


@pytest.mark.parametrize("period", [0.2, 0.21, 0.37, 1.2, 5.0])
def test_iterations_are_counted_without_an_error_at_the_ends_of_the_window(period):
    window = Window(1.0, 10.0)
    timeline = regular(period, 0.75 * period, window.end)
    assert timeline.iterations_per_s(window) == pytest.approx(1 / period)
    assert timeline.latencies(window) == pytest.approx(0.25 * period)
    assert timeline.computations(window) == pytest.approx(0.75 * period)


def test_the_share_of_synchronising_is_of_the_window():
    timeline = Timeline(np.array([1.0, 3.0]), np.array([2.0, 6.0]))
    assert timeline.sync_fraction(Window(0.0, 6.0)) == pytest.approx(4 / 6)
    assert timeline.sync_fraction(Window(1.5, 4.0)) == pytest.approx(1.5 / 2.5)
    assert timeline.sync_fraction(Window(2.0, 3.0)) == 0


def test_a_worker_that_finishes_nothing_in_the_window_is_not_left_out():
    timeline = Timeline(np.array([1.0]), np.array([8.0]))
    assert list(timeline.latencies(Window(2.0, 6.0))) == [7.0]
    assert timeline.iterations_per_s(Window(2.0, 6.0)) == pytest.approx(1 / 8)


# --- the model ---


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_a_model_tells_its_value_and_when_it_is_torn(count):
    model = Model(count, 2, extra=1)
    assert model.value() == model.sampled_value() == initial_value(2)
    other = Model(count, 5)
    np.add(model.weights, other.weights, out=model.weights)
    np.divide(model.weights, np.float32(7), out=model.weights)
    assert model.value() == pytest.approx(9 / 7, rel=1e-6)
    if count > 1:
        model.weights[1] *= 1.001
        assert model.value() is None
    assert model.buffer.size == count + 1


# --- the audit ---


def played(ranks: int, groups: int, seed: int, *, gone: int | None = None) -> list[SyncHistory]:
    """Pages of right averages in random groups; worker `gone` leaves after the first half, and is in groups still."""
    draws = np.random.default_rng(seed)
    values = [initial_value(rank) for rank in range(ranks)]
    histories = [SyncHistory([], value) for value in values]
    for sequence in range(groups):
        group = tuple(sorted(map(int, draws.permutation(ranks)[: draws.integers(1, ranks + 1)])))
        left = {gone} if gone is not None and sequence >= groups // 2 else set()
        average = sum(values[rank] for rank in group) / len(group)
        for rank in group:
            if rank not in left:
                histories[rank].syncs.append(Sync(sequence, group, values[rank], average, conflicts=sequence % 2))
                histories[rank].final = average
            values[rank] = average
    return histories


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_audit_finds_nothing_in_right_averages(ranks):
    for seed in range(20):
        histories = played(ranks, 60, seed)
        assert audit_syncs(histories, every_group=True, meets_after=8) == []
        assert spread(histories) < 1e-3


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_audit_finds_nothing_when_a_worker_leaves(ranks):
    for seed in range(20):
        histories = played(ranks, 60, seed, gone=ranks - 1)
        assert audit_syncs(histories, every_group=True) == []


def test_the_audit_finds_a_worker_that_left_and_took_part_with_something_else():
    histories = played(3, 6, 2, gone=2)
    late = next(history.syncs[-1] for history in histories[:2] if history.syncs and 2 in history.syncs[-1].group)
    histories[2].final = histories[2].final * 1.5
    assert f"group {late.sequence} of {late.group}" in findings(histories)
    assert "rank 2: left with" in findings(histories)


def changed(history: SyncHistory, number: int, **fields) -> None:
    history.syncs[number] = dataclasses.replace(history.syncs[number], **fields)


def findings(histories: list[SyncHistory], **options) -> str:
    return "\n".join(audit_syncs(histories, **{"every_group": True, **options}))


def test_the_audit_finds_a_torn_average():
    histories = played(4, 20, 1)
    changed(histories[2], 3, after=None)
    assert "rank 2: its weights are no multiple" in findings(histories)


def test_the_audit_finds_a_wrong_average_and_weights_that_were_lost():
    histories = played(4, 20, 1)
    first = histories[1].syncs[0]
    changed(histories[1], 0, after=first.after * 1.01)
    told = findings(histories)
    assert f"group {first.sequence} of {first.group}: the average" in told
    assert "rank 1: synchronisation 1 began with" in told


def test_the_audit_finds_a_value_that_is_no_average():
    histories = played(4, 20, 1)
    histories[0].syncs[-1] = dataclasses.replace(histories[0].syncs[-1], after=9.0)
    assert "which is no average" in findings(histories, every_group=False)


def test_the_audit_finds_a_worker_that_is_not_of_its_group():
    histories = played(4, 20, 1)
    changed(histories[0], 2, group=(1, 2))
    assert "rank 0: synchronisation 2 was of (1, 2), without it" in findings(histories)


def test_the_audit_finds_a_member_that_was_passed_over():
    histories = played(4, 40, 1)
    number = next(n for n, sync in enumerate(histories[3].syncs) if len(sync.group) > 1)
    del histories[3].syncs[number]
    assert "rank 3 was never given it, but later ones" in findings(histories)


def test_the_audit_finds_drift():
    histories = played(4, 20, 1)
    for history in histories:
        history.syncs = [dataclasses.replace(sync, after=sync.after * 1.001) for sync in history.syncs]
        history.final *= 1.001
    assert "the mean over workers was 2.5 and is" in findings(histories)


def test_the_audit_finds_workers_that_do_not_meet():
    values = [1.0, 2.0, 3.0, 4.0]
    histories = [SyncHistory([Sync(n, (r,), values[r], values[r]) for n in range(9)], values[r]) for r in range(4)]
    assert findings(histories) == ""
    assert "weights still differ" in findings(histories, meets_after=9)


def test_asking_is_what_the_last_member_waits_in_groups_without_conflicts():
    histories = [
        SyncHistory([Sync(0, (0, 1), 1.0, 1.0, waited=5.0), Sync(1, (0,), 1.0, 1.0, waited=0.25)]),
        SyncHistory([Sync(0, (0, 1), 1.0, 1.0, waited=0.5), Sync(2, (1,), 1.0, 1.0, conflicts=1, waited=9.0)]),
    ]
    begins = [np.array([1.0, 8.0]), np.array([5.5, 9.0])]
    assert sorted(audit.asking(histories, begins)) == [0.25, 0.5]


def test_conflicts_are_per_group_of_several_workers():
    histories = played(4, 20, 1)
    of_group = {sync.sequence: sync.conflicts for history in histories for sync in history.syncs if len(sync.group) > 1}
    assert audit.conflicts(histories) == pytest.approx(sum(of_group.values()) / len(of_group))


# --- records and figures ---

KEYS = {
    *("bench", "collective", "generator", "path", "ranks", "ranks_per_node", "bytes", "model_bytes", "dtype"),
    *("compute_ms", "slowdown", "seed", "iterations", "iterations_per_s", "iterations_per_s_of", "sync_fraction"),
    *("conflicts", "ideal_iterations_per_s", "latency_us", "baseline", "baseline_us", "baseline_iterations_per_s"),
    *("speedup", "verified"),
}


class Nodes:
    path = "board"
    ranks_per_node = 2


def setting(slowdown: dict[int, float]) -> Setting:
    return Setting(
        ranks=4,
        domain=Nodes(),
        bytes=1000,
        compute=0.2,
        slowdown=show_slowdown(slowdown),
        sleeps=seconds_of(slowdown, ranks=4, compute=0.2),
        iterations=40,
        warmup=2,
        seed=1,
        verify=True,
    )


def cell(name: str, period: float) -> GroupCell:
    window = Window(0.4, 8.4)
    return GroupCell.of(name, Run([regular(period, 0.2, window.end)] * 4, [_history(period, window)] * 4), window)


def _history(period: float, window: Window) -> SyncHistory:
    count = len(regular(period, 0.2, window.end).ends)
    return SyncHistory([Sync(n, (0, 1), 1.0, 1.0, conflicts=1, waited=0.01) for n in range(count)], 1.0)


def cells(slowdown: dict[int, float]) -> list[output.Record]:
    baseline = cell("allreduce", 0.5)
    return [
        group_record(setting(slowdown), measured, baseline, 2.0)
        for measured in (baseline, cell("smart", 0.25), cell("punctual", 0.22))
    ]


def test_records_have_the_contract_s_keys():
    baseline, smart, _ = json.loads(json.dumps(cells({1: 2.0})))
    assert set(smart) >= KEYS
    assert (baseline["speedup"], smart["speedup"]) == (1.0, pytest.approx(2.0, abs=1e-3))
    assert smart["iterations_per_s"] == pytest.approx(4.0, abs=1e-3)
    assert len(smart["iterations_per_s_of"]) == 4
    assert smart["baseline_iterations_per_s"] == pytest.approx(2.0, abs=1e-3)
    assert smart["ideal_iterations_per_s"] == pytest.approx((3 * 5 + 5 / 3) / 4, abs=1e-3)
    assert smart["sync_fraction"] == pytest.approx(0.2, abs=0.01)
    assert (smart["slowdown"], smart["conflicts"]) == ("1:2", 1.0)
    assert smart["waited_us"] == pytest.approx(10_000)
    assert baseline["waited_us"] is None


def test_the_model_is_that_of_the_documentation():
    assert modelled_speedup(None, setting({}), {}) == 1.0
    punctual = policies.build_generator("punctual", ranks=4, ranks_per_node=2, seed=1)
    assert modelled_speedup(punctual, setting({1: 5.0}), {1: 5.0}) > 3


def test_plot_draws_times_and_both_kinds_of_speedup(tmp_path):
    pytest.importorskip("matplotlib")
    import plot
    from common.figures import panels

    everything = [*cells({}), *cells({1: 2.0}), *cells({1: 5.0})]
    assert [panel.title.partition("MB, ")[2] for panel in panels(everything)] == [
        "slowdown none",
        "all equally fast",
        "slowdown 1:2",
        "some slowed down",
        "slowdown 1:5",
    ]
    path, picture = tmp_path / "groups.jsonl", tmp_path / "groups.png"
    with output.Records(path) as out:
        for record in everything:
            out.write(record)
    plot.plot.main(args=[str(path), "--output", str(picture)], standalone_mode=False)
    assert picture.read_bytes().startswith(b"\x89PNG")
