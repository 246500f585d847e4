"""The parts of bench/ that need no MPI: models, audits, tables, records, options, figures."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from pathlib import Path

import click
import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import audit, ideal, output, timing, workload  # noqa: E402
from common.cells import Cell, cell_record  # noqa: E402
from common.cli import common_options, launcher_mismatch, sweep_options  # noqa: E402
from common.output import mpi_name  # noqa: E402
from common.patterns import Contributions  # noqa: E402
from common.policies import PolicyName  # noqa: E402
from common.summary import Summary  # noqa: E402
from common.timing import block_sizes, calls_of  # noqa: E402
from common.warmup import MOST  # noqa: E402

# --- zero-cost model ---


def replay(arrivals: list[float], may_start) -> list[float]:
    """One iteration event by event: ranks wait until the round may start with those that are there."""
    waits, waiting, arrived, over = [0.0] * len(arrivals), [], set(), False
    for rank in sorted(range(len(arrivals)), key=lambda rank: arrivals[rank]):
        if over:
            continue  # late: does not wait
        arrived.add(rank)
        waiting.append(rank)
        if may_start(arrived):
            over = True
            for other in waiting:
                waits[other] = arrivals[rank] - arrivals[other]
    assert over
    return waits


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_ideal_waits_equal_a_replay_event_by_event(ranks):
    draws = np.random.default_rng(ranks)
    arrivals = draws.exponential(size=(ranks, 20))
    initiators = draws.integers(ranks, size=20)
    size = (ranks + 1) // 2
    for text, starts in {
        "solo": lambda there, first: True,
        "majority": lambda there, first: first in there,
        f"any-of:{size}": lambda there, first: first in there,
        f"quorum:{size}": lambda there, first: len(there) >= size,
        "full": lambda there, first: len(there) == ranks,
    }.items():
        waits = ideal.policy_waits(PolicyName.parse(text), arrivals, initiators)
        assert waits.shape == arrivals.shape
        for call, first in enumerate(initiators):
            expected = replay(list(arrivals[:, call]), lambda there, s=starts, f=first: s(there, f))
            np.testing.assert_allclose(waits[:, call], expected, err_msg=text)


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (4, 2), (5, 3), (4, 4)])
def test_ideal_waits_of_all_of_are_the_mean_over_all_designations(ranks, size):
    arrivals = np.random.default_rng(3).exponential(size=(ranks, 1))
    every = [
        replay(list(arrivals[:, 0]), lambda there, c=chosen: there.issuperset(c))
        for chosen in itertools.combinations(range(ranks), size)
    ]
    waits = ideal.policy_waits(PolicyName.parse(f"all-of:{size}"), arrivals, np.zeros(1, np.int64))
    np.testing.assert_allclose(waits[:, 0], np.mean(every, axis=0))


def test_ideal_of_the_paper_at_32_ranks():
    """Linear skew of 1 to 32 ms: 15.5 ms for MPI, 5.33 for a uniform initiator, 3.75 for half of the ranks."""
    arrivals = np.tile((np.arange(32.0) + 1)[:, None], (1, 32))
    each_once = np.arange(32)
    assert ideal.synchronous_waits(arrivals).mean() == pytest.approx(15.5)
    assert ideal.policy_waits(PolicyName("majority"), arrivals, each_once).mean() == pytest.approx(5.33, abs=0.01)
    assert ideal.policy_waits(PolicyName("quorum", 16), arrivals, each_once).mean() == pytest.approx(3.75)
    assert ideal.policy_waits(PolicyName("solo"), arrivals, each_once).mean() == 0


# --- delays ---


@pytest.mark.parametrize("pattern", workload.PATTERNS)
def test_delays_have_a_row_per_call_and_are_the_same_for_the_same_seed(pattern, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("0.001,0.002,0,0\n0.003,0,0,0\n")
    matrix = workload.delay_matrix(pattern, ranks=4, calls=6, skew_us=500, seed=3, trace=trace)
    assert matrix.shape == (6, 4)
    assert (matrix >= 0).all()
    again = workload.delay_matrix(pattern, ranks=4, calls=6, skew_us=500, seed=3, trace=trace)
    np.testing.assert_array_equal(matrix, again)


def test_delays_follow_their_patterns(tmp_path):
    def matrix(pattern, **options):
        return workload.delay_matrix(pattern, ranks=3, calls=4, skew_us=1000, **options)

    assert not matrix("none").any()
    np.testing.assert_allclose(matrix("linear"), np.tile([0.001, 0.002, 0.003], (4, 1)))
    np.testing.assert_allclose(matrix("rotating") > 0, np.arange(4)[:, None] % 3 == np.arange(3))
    assert (np.count_nonzero(matrix("one-late"), axis=1) == 1).all()
    trace = tmp_path / "trace.csv"
    trace.write_text("0.001,0.002,0\n0.003,0,0\n")
    np.testing.assert_allclose(matrix("trace", trace=trace)[:, 0], [0.001, 0.003, 0.001, 0.003])
    with pytest.raises(ValueError, match="file"):
        matrix("trace")


def test_delays_of_no_skew_are_none():
    assert not workload.delay_matrix("lognormal", ranks=2, calls=2, skew_us=0).any()


@pytest.mark.parametrize("inject", workload.INJECTORS.values())
def test_injected_delays_last_as_long_as_asked(inject):
    begin = time.perf_counter()
    inject(0.01)
    assert time.perf_counter() - begin >= 0.01


# --- contributions ---


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("ranks", "count"), [(1, 1), (5, 100), (32, 13)])
def test_sums_of_contributions_show_their_total(dtype, ranks, count):
    contributions = Contributions(np.dtype(dtype), count, ranks)
    values = contributions.values(2 * ranks, [1])
    result, one = np.zeros(count, dtype), np.empty(count, dtype)
    for value in values:
        contributions.fill(one, value)
        result += one
    assert contributions.total(result) == sum(values)
    if count > 1:
        result[count // 2] += 1
        assert contributions.total(result) is None


def test_contributions_refuse_a_dtype_that_cannot_hold_the_sum():
    with pytest.raises(ValueError, match="int8"):
        Contributions(np.dtype("int8"), 1, 64)


# --- audit of the rounds ---


def played(ranks: int, calls: int, *, late: str, seed: int) -> list[audit.CallHistory]:
    """Pages of a right collective in which a random part of the ranks is late in each round."""
    draws = np.random.default_rng(seed)
    histories = [audit.CallHistory() for _ in range(ranks)]
    pending: list[int | None] = [None] * ranks

    def take() -> tuple[tuple[int, ...], int]:
        contributors = tuple(rank for rank in range(ranks) if pending[rank] is not None)
        total = sum(pending[rank] or 0 for rank in contributors)
        pending[:] = [None] * ranks
        return contributors, total

    def give(rank: int, value: int) -> None:
        before = pending[rank] if late == "accumulate" else None
        pending[rank] = (before or 0) + value

    for number in range(calls):
        values = [int(value) for value in draws.integers(1, 1000, ranks)]
        in_time = sorted(int(rank) for rank in draws.permutation(ranks)[: draws.integers(1, ranks + 1)])
        for rank in in_time:
            give(rank, values[rank])
        contributors, total = take()
        for rank in range(ranks):
            included = rank in in_time
            made = audit.Call(values[rank], number, in_time[0], contributors, len(in_time), included, total)
            histories[rank].calls.append(made)
            if not included and late != "drop":
                give(rank, values[rank])
    contributors, total = take()
    for rank, history in enumerate(histories):
        history.flush = audit.Call(0, calls, 0, contributors, 0, rank in contributors, total)
    return histories


@pytest.mark.parametrize("late", ["accumulate", "replace", "drop"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_audit_finds_nothing_in_a_right_collective(ranks, late):
    for seed in range(20):
        assert audit.audit_calls(played(ranks, 12, late=late, seed=seed), late=late) == []


def changed(history: audit.CallHistory, call: int, **fields) -> None:
    history.calls[call] = audit.Call(**{**vars(history.calls[call]), **fields})


def test_the_audit_finds_a_wrong_sum():
    histories = played(4, 6, late="accumulate", seed=1)
    for history in histories:
        changed(history, 3, total=history.calls[3].total + 1)
    assert "round 3" in audit.audit_calls(histories, late="accumulate")[0]


def test_the_audit_finds_a_torn_result():
    histories = played(4, 6, late="accumulate", seed=1)
    for history in histories:
        changed(history, 3, total=None)
    assert "not a multiple" in audit.audit_calls(histories, late="accumulate")[0]


def test_the_audit_finds_ranks_that_disagree():
    histories = played(4, 6, late="accumulate", seed=1)
    changed(histories[2], 3, total=0)
    assert "rank 2 was given" in audit.audit_calls(histories, late="accumulate")[0]


def test_the_audit_finds_a_lost_contribution():
    histories = played(4, 6, late="accumulate", seed=1)
    histories[1].calls[2] = audit.Call(**{**vars(histories[1].calls[2]), "value": histories[1].calls[2].value + 5})
    assert audit.audit_calls(histories, late="accumulate")


def test_the_audit_finds_a_contributor_that_gave_nothing():
    empty = audit.Call(0, 1, 0, (0, 1), 0, False, 7)
    call = audit.Call(7, 0, 0, (0,), 1, True, 7)
    late = audit.Call(7, 0, 0, (0,), 1, False, 7)
    histories = [audit.CallHistory([call], empty), audit.CallHistory([late], empty)]
    assert any("nothing to contribute" in finding for finding in audit.audit_calls(histories, late="accumulate"))


def test_the_audit_finds_a_round_below_its_quorum():
    histories = played(4, 12, late="drop", seed=2)
    least = min(len(call.contributors) for call in histories[0].calls)
    assert audit.audit_calls(histories, late="drop", quorum=least) == []
    assert any("contributors" in finding for finding in audit.audit_calls(histories, late="drop", quorum=least + 1))


# --- statistics, tables, records ---


def test_summary_is_over_all_samples():
    summary = Summary.of(np.arange(101.0).reshape(1, 101))
    assert summary == Summary(min=0, mean=50, p50=50, p99=99, max=100)
    assert list(summary.as_json()) == ["min", "mean", "p50", "p99", "max"]


def test_table_is_in_the_manner_of_osu(monkeypatch):
    monkeypatch.setattr(output, "machine", lambda: "AMD EPYC, 2 cores, Linux")
    shown = output.Table(
        "pycollectives Solo Allreduce Skewed Latency v0.1",
        ["ranks 8"],
        [output.Column("Size"), output.Column("Avg Latency(us)"), output.Column("Speedup")],
    )
    assert shown.head().splitlines() == [
        "# pycollectives Solo Allreduce Skewed Latency v0.1",
        "# AMD EPYC, 2 cores, Linux",
        "# ranks 8",
        "# Size       Avg Latency(us)           Speedup",
    ]
    assert shown.row([8, 41.234, None]) == "8                      41.23                 -"


def test_records_are_written_line_by_line_and_read_back(tmp_path):
    path = tmp_path / "new" / "out.jsonl"
    with output.Records(path) as out:
        out.write({"bench": "skew", "bytes": 8})
        assert len(path.read_text().splitlines()) == 1
        out.write({"bench": "skew", "bytes": 16})
    assert [record["bytes"] for record in output.read_records([path, path])] == [8, 16, 8, 16]
    path.write_text('{"bench": "skew"}\n\nnonsense\n')
    with pytest.raises(ValueError, match=r"out\.jsonl:3"):
        output.read_records([path])


def test_no_records_are_written_without_a_path():
    with output.Records(None) as out:
        out.write({"bench": "skew"})


def test_mpi_name():
    assert mpi_name("Open MPI v5.0.11, package: Open MPI x Distribution, ident: 5.0.11\0") == "Open MPI v5.0.11"
    assert mpi_name("MPICH Version:      5.0.0\nMPICH Release date: x\n") == "MPICH Version: 5.0.0"


# --- options ---


def run_options(decorator, arguments: list[str]):
    got = []

    @click.command()
    @decorator
    def command(options) -> None:
        got.append(options)

    command.main(args=arguments, standalone_mode=False)
    return got[0]


SWEEP = sweep_options(iterations=64, sizes="8,32768", policies="solo,quorum", late="drop")


def test_sweep_options():
    sweep = run_options(SWEEP, [])
    assert (sweep.iterations, sweep.bytes, sweep.verify, sweep.ranks_per_node) == (64, [8, 32768], True, None)
    assert (sweep.warmup, sweep.longest_warmup) == (None, MOST)
    assert [str(policy) for policy in sweep.policies(7, "solo,quorum")] == ["solo", "quorum:3"]
    sweep = run_options(SWEEP, ["--policy", "majority,all-of:3,full", "--no-verify", "--ranks-per-node", "2"])
    assert run_options(SWEEP, ["--warmup", "3"]).longest_warmup == 3
    assert [policy.title for policy in sweep.policies(4, "solo")] == ["Majority", "AllOf(3)", "Full"]
    assert (sweep.verify, sweep.ranks_per_node) == (False, 2)
    with pytest.raises(click.UsageError, match="needs 3 ranks, this run has 2"):
        sweep.policies(2, "solo")
    with pytest.raises(click.UsageError, match="7 bytes"):
        run_options(SWEEP, ["--bytes", "7"]).policies(2, "solo")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "quorum"],
        ["--policy", "solo:3"],
        ["--policy", "quorum:0"],
        ["--bytes", "8,x"],
        ["--bytes", "0"],
        ["--ranks-per-node", "0"],
        ["--iterations", "0"],
        ["--warmup", "some"],
        ["--dtype", "bfloat16"],
    ],
)
def test_wrong_options_are_refused(arguments):
    with pytest.raises(click.UsageError):
        run_options(SWEEP, arguments)


def test_common_options(tmp_path):
    common = run_options(common_options(iterations=3), ["--json", str(tmp_path / "x"), "--list", "--seed", "4"])
    assert (common.iterations, common.seed, common.list_only, common.json) == (3, 4, True, tmp_path / "x")


def test_policies_are_built():
    for text in ("solo", "majority", "quorum:2", "any-of:2", "all-of:2", "full"):
        assert PolicyName.parse(text).build(seed=1).kind == text.partition(":")[0].replace("-", "_")
        assert str(PolicyName.parse(text)) == text


def test_blocks_add_up():
    for iterations in range(1, 20):
        assert sum(block_sizes(iterations)) == iterations
        assert min(block_sizes(iterations)) >= 1
        assert calls_of(iterations, 3) == iterations + 3 * len(block_sizes(iterations))


def test_a_foreign_launcher_is_noticed():
    assert launcher_mismatch({}, 1) is None
    text, rank = launcher_mismatch({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}, 1)
    assert "SLURM_STEP_NUM_TASKS=8" in text
    assert "1 rank" in text
    assert rank == 3


def test_the_tasks_of_a_slurm_step_are_counted_and_not_those_of_its_allocation():
    allocation = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    assert launcher_mismatch(allocation, 1) is None  # in a batch script, or below salloc
    assert launcher_mismatch({**allocation, "SLURM_STEP_NUM_TASKS": "2"}, 2) is None  # srun -n 2
    mpirun = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}
    assert launcher_mismatch({**allocation, "SLURM_STEP_NUM_TASKS": "2", **mpirun}, 4) is None


@pytest.mark.skipif(not timing.TASKS.exists(), reason="needs /proc")
def test_cpu_seconds_are_those_of_the_threads_asked_for():
    before, stop = timing.thread_ids(), threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        new = timing.thread_ids() - before
        assert len(new) == 1
        begin, at_begin = time.perf_counter(), timing.cpu_seconds(new)
        while timing.cpu_seconds(new) - at_begin < 0.02:
            assert time.perf_counter() - begin < 10
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()


# --- records of cells, and their figures ---

SUMMARY = Summary(1.0, 2.0, 2.0, 3.0, 4.0)
KEYS = {
    *("bench", "collective", "policy", "path", "ranks", "ranks_per_node", "bytes", "dtype", "iterations"),
    *("latency_us", "active_mean", "ideal_us", "baseline", "baseline_us", "speedup", "verified"),
}


def cell(mean: float) -> Cell:
    return Cell(
        latency=Summary(1.0, mean, 2.0, 3.0, 400.0),
        mpi={"MPI_Allreduce": Summary(1.0, 100.0, 2.0, 3.0, 400.0), "MPI_Iallreduce": SUMMARY},
        active_mean=1.5,
        ideal_us=20.0,
        ideal_mpi_us=60.0,
        algorithm="ring",
        activation="tree",
        warmup=24,
        stationary=True,
    )


class Board:
    path = "board"
    ranks_per_node = 4


def test_a_cell_compares_with_mpi_and_with_the_ideal():
    measured = cell(40.0)
    assert measured.speedup == 2.5
    assert measured.ideal_speedup == 3.0
    assert measured.ideal_fraction == pytest.approx(2.5 / 3)
    without = Cell(**{**vars(measured), "mpi": {}})
    assert (without.baseline, without.speedup, without.ideal_fraction) == (None, None, None)
    instant = Cell(**{**vars(measured), "ideal_us": 0.0})
    assert instant.ideal_speedup is None
    assert instant.ideal_fraction is None


def cells(bench: str) -> list[output.Record]:
    sweep = run_options(SWEEP, [])
    extra = {
        "skew": {"skew": "linear", "skew_us": 1000.0, "inject": "sleep"},
        "latency": {"iallreduce_us": {"mean": 1}},
    }
    return [
        {**cell_record(bench, sweep, PolicyName.parse(policy), size, 8, Board(), cell(40.0)), **extra[bench]}
        for policy in ("solo", "quorum:4")
        for size in (8, 4096, 1 << 22)
    ]


def test_records_have_the_contract_s_keys():
    record = json.loads(json.dumps(cells("skew")[0]))
    assert set(record) >= KEYS
    assert list(record["latency_us"]) == list(record["baseline_us"]) == ["min", "mean", "p50", "p99", "max"]
    assert (record["path"], record["ranks_per_node"], record["policy"]) == ("board", 4, "solo")
    assert (record["activation"], record["activation_used"]) == ("auto", "tree")


def test_plot_draws_every_benchmark_from_its_records(tmp_path):
    pytest.importorskip("matplotlib")
    import plot

    idle = {"bench": "idle", "path": "flat", "cpu_fraction": 0.01, "cpu_fraction_computing": 0.02, "slowdown": 1.01}
    path, picture = tmp_path / "all.jsonl", tmp_path / "all.png"
    with output.Records(path) as out:
        for record in [*cells("skew"), *cells("latency"), {**idle, "ranks": 8}, {**idle, "ranks": 2}]:
            out.write(record)
    plot.plot.main(args=[str(path), "--output", str(picture)], standalone_mode=False)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_panels_part_what_cannot_be_compared(tmp_path):
    pytest.importorskip("matplotlib")
    from common.figures import panels, size_label

    more = [{**record, "ranks": 32} for record in cells("skew")]
    assert [len(panel.records) for panel in panels([*cells("skew"), *more])] == [6, 6]
    with pytest.raises(ValueError, match="'unheard'"):
        panels([{"bench": "unheard"}])
    with pytest.raises(ValueError, match="no records"):
        panels([])
    assert [size_label(size) for size in (8, 1024, 1500, 1 << 22)] == ["8 B", "1 KiB", "1500 B", "4 MiB"]
