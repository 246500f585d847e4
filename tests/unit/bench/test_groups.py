"""The parts of bench/groups.py that need no MPI: generators, slowdowns, timelines, books, records, figures."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import generators, group_books, records  # noqa: E402
from common.group_books import Entry, Page, audit, spread  # noqa: E402
from common.group_cell import GroupCell, Setting, group_record, modelled_speedup  # noqa: E402
from common.model import Model, initial_value  # noqa: E402
from common.slowdown import parse_slowdown, seconds_of, show_slowdown  # noqa: E402
from common.timeline import Timeline, Window  # noqa: E402
from common.workers import Run  # noqa: E402

# --- the command line ---


def test_the_allreduce_is_always_measured_first_and_nothing_twice():
    assert generators.parse_generators("smart, random,smart") == ["allreduce", "smart", "random"]
    assert generators.parse_generators("random,allreduce") == ["allreduce", "random"]
    assert generators.parse_generators("all") == list(generators.GENERATORS)
    with pytest.raises(ValueError, match="'clever'"):
        generators.parse_generators("clever")


@pytest.mark.parametrize("ranks", [1, 2, 3, 16])
def test_every_generator_can_be_built_and_makes_sense_for_its_workers(ranks):
    for name in generators.GENERATORS:
        generator = generators.build_generator(name, ranks=ranks, ranks_per_node=2, seed=3)
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


# --- the books ---


def played(ranks: int, groups: int, seed: int, *, gone: int | None = None) -> list[Page]:
    """Pages of right averages in random groups; worker `gone` leaves after the first half, and is in groups still."""
    draws = np.random.default_rng(seed)
    values = [initial_value(rank) for rank in range(ranks)]
    pages = [Page([], value) for value in values]
    for sequence in range(groups):
        group = tuple(sorted(map(int, draws.permutation(ranks)[: draws.integers(1, ranks + 1)])))
        left = {gone} if gone is not None and sequence >= groups // 2 else set()
        average = sum(values[rank] for rank in group) / len(group)
        for rank in group:
            if rank not in left:
                pages[rank].entries.append(Entry(sequence, group, values[rank], average, conflicts=sequence % 2))
                pages[rank].final = average
            values[rank] = average
    return pages


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_books_of_right_averages_are_right(ranks):
    for seed in range(20):
        pages = played(ranks, 60, seed)
        assert audit(pages, every_group=True, meets_after=8) == []
        assert spread(pages) < 1e-3


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_books_are_right_when_a_worker_leaves(ranks):
    for seed in range(20):
        pages = played(ranks, 60, seed, gone=ranks - 1)
        assert audit(pages, every_group=True) == []


def test_books_show_a_worker_that_left_and_took_part_with_something_else():
    pages = played(3, 6, 2, gone=2)
    late = next(page.entries[-1] for page in pages[:2] if page.entries and 2 in page.entries[-1].group)
    pages[2].final = pages[2].final * 1.5
    assert f"group {late.sequence} of {late.group}" in findings(pages)
    assert "rank 2: left with" in findings(pages)


def changed(page: Page, number: int, **fields) -> None:
    page.entries[number] = dataclasses.replace(page.entries[number], **fields)


def findings(pages: list[Page], **options) -> str:
    return "\n".join(audit(pages, **{"every_group": True, **options}))


def test_books_show_a_torn_average():
    pages = played(4, 20, 1)
    changed(pages[2], 3, after=None)
    assert "rank 2: its weights are no multiple" in findings(pages)


def test_books_show_a_wrong_average_and_weights_that_were_lost():
    pages = played(4, 20, 1)
    first = pages[1].entries[0]
    changed(pages[1], 0, after=first.after * 1.01)
    told = findings(pages)
    assert f"group {first.sequence} of {first.group}: the average" in told
    assert "rank 1: synchronisation 1 began with" in told


def test_books_show_a_value_that_is_no_average():
    pages = played(4, 20, 1)
    pages[0].entries[-1] = dataclasses.replace(pages[0].entries[-1], after=9.0)
    assert "which is no average" in findings(pages, every_group=False)


def test_books_show_a_worker_that_is_not_of_its_group():
    pages = played(4, 20, 1)
    changed(pages[0], 2, group=(1, 2))
    assert "rank 0: synchronisation 2 was of (1, 2), without it" in findings(pages)


def test_books_show_a_member_that_was_passed_over():
    pages = played(4, 40, 1)
    number = next(n for n, entry in enumerate(pages[3].entries) if len(entry.group) > 1)
    del pages[3].entries[number]
    assert "rank 3 was never given it, but later ones" in findings(pages)


def test_books_show_drift():
    pages = played(4, 20, 1)
    for page in pages:
        page.entries = [dataclasses.replace(entry, after=entry.after * 1.001) for entry in page.entries]
        page.final *= 1.001
    assert "the mean over workers was 2.5 and is" in findings(pages)


def test_books_show_workers_that_do_not_meet():
    values = [1.0, 2.0, 3.0, 4.0]
    pages = [Page([Entry(n, (r,), values[r], values[r]) for n in range(9)], values[r]) for r in range(4)]
    assert findings(pages) == ""
    assert "weights still differ" in findings(pages, meets_after=9)


def test_asking_is_what_the_last_member_waits_in_groups_without_conflicts():
    pages = [
        Page([Entry(0, (0, 1), 1.0, 1.0, waited=5.0), Entry(1, (0,), 1.0, 1.0, waited=0.25)]),
        Page([Entry(0, (0, 1), 1.0, 1.0, waited=0.5), Entry(2, (1,), 1.0, 1.0, conflicts=1, waited=9.0)]),
    ]
    begins = [np.array([1.0, 8.0]), np.array([5.5, 9.0])]
    assert sorted(group_books.asking(pages, begins)) == [0.25, 0.5]


def test_conflicts_are_per_group_of_several_workers():
    pages = played(4, 20, 1)
    of_group = {e.sequence: e.conflicts for page in pages for e in page.entries if len(e.group) > 1}
    assert group_books.conflicts(pages) == pytest.approx(sum(of_group.values()) / len(of_group))


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
    return GroupCell.of(name, Run([regular(period, 0.2, window.end)] * 4, [_page(period, window)] * 4), window)


def _page(period: float, window: Window) -> Page:
    count = len(regular(period, 0.2, window.end).ends)
    return Page([Entry(n, (0, 1), 1.0, 1.0, conflicts=1, waited=0.01) for n in range(count)], 1.0)


def cells(slowdown: dict[int, float]) -> list[records.Record]:
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
    punctual = generators.build_generator("punctual", ranks=4, ranks_per_node=2, seed=1)
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
    with records.Records(path) as out:
        for record in everything:
            out.write(record)
    plot.plot.main(args=[str(path), "--output", str(picture)], standalone_mode=False)
    assert picture.read_bytes().startswith(b"\x89PNG")
