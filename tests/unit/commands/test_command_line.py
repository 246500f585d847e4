"""python -m pycollectives."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from rich.console import Console

from pycollectives.__main__ import main
from pycollectives.commands.info import described_cuda, device_table
from pycollectives.selection import choice


def run(*arguments, **environment):
    command = [sys.executable, "-m", "pycollectives", *map(str, arguments)]
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)


def test_there_is_a_command_of_that_name():
    script = Path(sys.executable).parent / "pycollectives"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=100)
    assert done.stdout == run("--version").stdout.replace("python -m pycollectives", "pycollectives"), done


def test_info_works_without_a_launcher():
    done = run("info")
    assert done.returncode == 0, done.stderr
    for word in (
        "MPI_THREAD_MULTIPLE",
        "loopback",
        "recursive_doubling",
        "rabenseifner",
        "ring",
        "<= 524288",
        "built-in",
        "Measured by",
    ):
        assert word in done.stdout


def test_info_says_why_cuda_is_off_or_what_there_is():
    """Whichever it is here; tests/unit/cuda has the reasons one by one."""
    line = next(line for line in run("info").stdout.splitlines() if line.split()[:1] == ["CUDA"])
    assert line.split(maxsplit=1)[1].startswith(
        ("off: it was built with", "off: no", "off: the driver", "off: /", "ready")
    )


def test_info_describes_cuda():
    found = {"reason": "", "driver_version": 12040, "kernels": "as PTX", "devices": []}
    kernels = "kernels as PTX"
    assert described_cuda(found).splitlines() == ["ready: a driver for CUDA 12.4", kernels]
    assert described_cuda({**found, "reason": "no driver"}).splitlines() == ["off: no driver", kernels]
    assert described_cuda({**found, "reason": "no driver", "kernels": ""}) == "off: no driver"


def test_info_lists_devices():
    device = {
        "name": "H200", "capability": "9.0", "bytes": 2**37, "pci_bus_id": "0000:18:00.0", "why_not_shared": "",
        "one_process_at_a_time": False, "reaches": [True, True, False],
    }  # fmt: skip
    alone = {**device, "why_not_shared": "integrated device", "one_process_at_a_time": True, "reaches": [False, True]}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(device_table([device, alone]))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    assert ["0", "H200", "9.0", "128 GiB", "0000:18:00.0", "yes", "any", "0 1 -"] in rows
    assert ["1", "H200", "9.0", "128 GiB", "0000:18:00.0", "no: integrated device", "one, or MPS", "- 1"] in rows


def test_info_says_which_table_is_used(tmp_path):
    table = json.loads((Path(choice.__file__).parent / "measured.json").read_text())
    table["allreduce"]["schedule"].insert(0, {"min_ranks": 3, "max_ranks": 5, "sparse": False, "schedule": "ring"})
    table["allreduce"]["board"].insert(0, {"max_bytes": 77, "board": False})
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    said = run("info", PYC_SELECTION=str(path)).stdout
    assert str(path) in said
    for words in ("3 - 5", "<= 77", "64 KiB"):
        assert words in said
    assert "built-in" in run("info").stdout

    path.write_text('{"format": 2, "allreduce": {"board": 5}}')
    done = run("info", PYC_SELECTION=str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path}: allreduce.board: expected a list of rows, got 5" in done.stderr


def test_tuning_needs_several_ranks(tmp_path):
    done = run("tune", XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "run `mpirun -n P python -m pycollectives tune`" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("sizes", ["0", "8,", "6", "-8", "8 KiB"])
def test_sizes_that_cannot_be_tuned(sizes):
    done = run("tune", "--bytes", sizes)
    assert done.returncode == 2
    assert "expected multiples of 4, separated by commas" in done.stderr


@pytest.mark.parametrize("load", ["equal", "linear", "one-late", "rotating", "shifting", "cloud", "one-slow"])
def test_simulate(load):
    done = run("simulate", "--policy", "quorum:4", "--load", load, "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["active_mean"] >= 4
    assert figures["latency_us_p50"] <= figures["latency_us_p99"]


def test_simulate_full_is_as_fast_as_synchronous():
    assert json.loads(run("simulate", "--policy", "full", "--json").stdout)["throughput"] == 1.0


def test_simulate_solo_under_skew_waits_for_nobody():
    figures = json.loads(run("simulate", "--ideal", "--barrier", "--json", "-n", 32).stdout)
    assert figures["latency_us_mean"] < 1.0
    assert figures["active_mean"] == pytest.approx(1.0, abs=0.1)


def test_simulate_prints_a_table():
    done = run("simulate", "-n", 3)
    assert "throughput over synchronous" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--policy", "quorum:9"], "expected 1 <= k <= 8"),
        (["simulate", "--policy", "often"], "policy 'often': expected"),
        (["simulate", "--load", "trace"], "needs --trace FILE"),
        (["simulate", "--trace", __file__], "expected --load trace, got --load linear"),
        (
            ["simulate", "--load", "trace", "--trace", __file__, "--skew-us", "5"],
            "the file defines all work; expected no --skew-us",
        ),
        (["simulate", "--ideal", "--gap-ns", "1"], "messages take no time; expected no --gap-ns"),
        (["simulate", "--algorithm", "bush"], "got 'bush'"),
        (["simulate", "--algorithm", "board"], "expected nodes of several ranks"),
        (["bench", "sked"], "expected one of "),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    done = run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def commands(group):
    for command in group.commands.values():
        yield from commands(command) if isinstance(command, click.Group) else [command]


def test_a_file_that_is_written_is_given_by_output():
    options = [(command.name, option.opts) for command in commands(main) for option in command.params]
    given = [(name, opts) for name, opts in options if "--output" in opts or "-o" in opts]
    assert {"run", "plot", "merge", "draw", "tune", "train"} <= {name for name, _ in given}
    assert all({"--output", "-o"} <= set(opts) for _, opts in given)
    assert not [name for name, opts in options if "--out" in opts]


def test_benchmarks_are_listed_and_take_their_own_options():
    assert {"skew", "latency", "idle", "groups"} <= set(run("bench").stdout.split())
    done = run("bench", "skew", "--help")
    assert done.returncode == 0, done.stderr
    assert "--skew-us" in done.stdout


def test_trace_merge(tmp_path):
    for rank in range(2):
        events = [{"ph": "X", "name": "send", "pid": rank, "ts": 1.0, "dur": 2.0}]
        (tmp_path / f"run.rank{rank}.json").write_text(json.dumps({"traceEvents": events}))
    out = tmp_path / "run.json"
    done = run("trace", "merge", *tmp_path.glob("run.rank*.json"), "-o", out)
    assert "2 events of 2 ranks" in done.stdout
    assert len(json.loads(out.read_text())["traceEvents"]) == 2


def test_a_simulated_server_says_its_throughput_over_bsp():
    load = ("--load", "one-slow", "--ranks", 4, "--calls", 16, "--work-us", 1000)
    told = {sync: json.loads(run("simulate", "--sync", sync, *load, "--json").stdout) for sync in ("bsp", "asp")}
    assert told["bsp"]["throughput"] == 1.0
    assert told["asp"]["throughput"] > 1.0
