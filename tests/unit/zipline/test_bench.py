"""bench/zipline.py prints a table, writes the contract's keys, checks what it times, and needs no MPI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

import pycollectives as pc

BENCH = Path(__file__).resolve().parents[3] / "bench"
SCRIPT = [str(BENCH / "zipline.py")]
COMMAND = ["-m", "pycollectives", "bench", "zipline"]
KEYS = {
    *("bench", "algorithm", "workers", "lookahead", "d", "t_sync", "time_us", "iterations", "seed", "verified"),
    *("commit", "mpi", "machine", "sets", "optima", "times_linear"),
}


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_table_and_records(tmp_path):
    path = tmp_path / "zipline.jsonl"
    algorithms = "zipline_linear,incremental,zipline_opt_bs,zipline_opt,zipline,naive,grid_scan,full_grid_scan"
    sizes = ["--workers", "2,4", "--lookahead", "3,15", "--iterations", "2", "--seed", "5", "--sets", "3"]
    done = run(*SCRIPT, *sizes, "--algorithms", algorithms, "--json", path)
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# pycollectives ZipLine Barrier Search v")
    rows = [line.split() for line in lines if not line.startswith("#")]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len(records) == 8 * 4
    for row, record in zip(rows, records, strict=True):
        assert set(record) == KEYS
        assert (record["bench"], record["mpi"], record["verified"]) == ("zipline", None, True)
        assert list(record["time_us"]) == ["min", "p50"]
        assert 0 < record["time_us"]["min"] <= record["time_us"]["p50"]
        size = (record["workers"], record["lookahead"])
        best = [pc.zipline.zipline_linear(pc.zipline.generate(*size, seed=seed)) for seed in (5, 6, 7)]
        assert record["sets"] == 3 >= record["optima"]
        if record["algorithm"] in ("grid_scan", "full_grid_scan"):
            assert record["d"] >= sum(of.d for of in best) / 3
        else:
            assert record["optima"] == 3
            assert (record["d"], record["t_sync"]) == (sum(of.d for of in best) / 3, sum(of.t_sync for of in best) / 3)
        shown = [record["algorithm"], *size, *(f"{record[key]:.1f}" for key in ("d", "t_sync"))]
        assert row[:6] == [*map(str, shown), f"{record['optima']}/3"]
    assert any(record["optima"] < 3 for record in records), "a heuristic missed an optimum"
    assert {record["times_linear"] for record in records if record["algorithm"] == "zipline_linear"} == {1.0}


def test_as_a_command_and_without_linear():
    done = run(*COMMAND, "--workers", "3", "--lookahead", "4", "--algorithms", "zipline_opt", "--no-verify")
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
    assert "not verified" in done.stdout
    assert done.stdout.splitlines()[-1].split()[-1] == "-"


def test_list():
    done = run(*COMMAND, "--list", "--workers", "2,3", "--algorithms", "zipline_linear,grid_scan", "--lookahead", "5")
    assert done.stdout.splitlines() == ["zipline_linear 2 5", "grid_scan 2 5", "zipline_linear 3 5", "grid_scan 3 5"]


def test_mpi_is_not_started():
    program = (
        f"import sys, runpy; sys.path.insert(0, {str(BENCH)!r}); sys.argv = ['zipline.py', '--list'];"
        "import atexit; atexit.register(lambda: print('mpi4py.MPI' in sys.modules));"
        f"runpy.run_path({SCRIPT[0]!r}, run_name='__main__')"
    )
    assert run("-c", program).stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "10,0"], "expected positive numbers separated by commas, got '10,0'"),
        (["--algorithms", "fast"], "got 'fast'"),
        (["--algorithms", "naive"], "naive looks at lookahead^workers sets: 15^10 are more than 1000000"),
        (["--iterations", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_use(arguments, message):
    done = run(*SCRIPT, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_wrong_result_ends_the_run(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import zipline as script

    rows = pc.zipline.generate(4, 5, seed=1)
    best = pc.zipline.zipline_linear(rows)
    for name, wrong in (
        ("zipline_opt", best._replace(d=best.d + 1)),
        ("zipline_opt", best._replace(iterations=(0,) * 4)),
        ("zipline_opt", pc.zipline.zipline_linear(rows[:, 1:])),
        ("grid_scan", best._replace(d=best.d - 1)),
    ):
        monkeypatch.setattr(pc.zipline, name, lambda rows, wrong=wrong: wrong)
        subject = script.FullSolution(name, rows)
        subject.measure()
        with pytest.raises(click.ClickException, match=rf"^{name} returned "):
            subject.check()
    update = script.Update(rows, pc.zipline.generate(4, 5, seed=2))
    update.measure()
    update.check()
    update._worker = 1
    with pytest.raises(click.ClickException, match=r"^incremental returned "):
        update.check()
