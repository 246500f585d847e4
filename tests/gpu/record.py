"""Runs what needs a GPU, and writes a record of it; tests/gpu/run.sh prepares the machine and calls this.

`--simulated` runs the benchmarks on the simulated driver instead, to see that this program works; its record says so,
and its times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bars import bars

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900
MARKED = ["tests/gpu"]


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    megabytes: float
    repetitions: int
    iterations: int
    late_ms: float
    compute_ms: float


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    print("+", *command, flush=True)
    return subprocess.run(
        ["timeout", "--kill-after=10", str(SECONDS), *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def mpirun(ranks: int) -> list[str]:
    return ["tools/mpirun", "-n", str(ranks)]


# --- Tests ------------------------------------------------------------------------------------------------------------


def tests(name: str, launch: list[str], paths: list[str]) -> dict[str, object]:
    """Run the marked tests of some files: how many passed, and what failed."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report")
        # Each rank writes a report of its own; that of the first to fail ends the job.
        program = (
            f'exec pytest -q -x -m gpu -p no:cacheprovider --junitxml={report}-"${{OMPI_COMM_WORLD_RANK:-0}}".xml "$@"'
        )
        done = run([*launch, "sh", "-c", program, "sh", *paths])
        suites = [ET.parse(path).getroot().find("testsuite") for path in Path(folder).glob("report-*.xml")]
    counts = {
        key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    }
    passed = done.returncode == 0 and counts["tests"] > 0 and not counts["skipped"]
    if not passed:
        print(done.stdout[-8000:] + done.stderr[-8000:])
    return {"name": name, "passed": passed, **counts}


# --- Benchmarks -------------------------------------------------------------------------------------------------------


def measured(name: str, ranks: int, scale: Scale, simulated: bool) -> list[dict[str, object]]:
    """What a program of this folder prints."""
    options = ["--megabytes", str(scale.megabytes), "--repetitions", str(scale.repetitions)]
    options += ["--simulated"] if simulated else []
    done = run([*mpirun(ranks), sys.executable, f"tests/gpu/{name}.py", *options])
    if done.returncode:
        return failed(name, ranks, done)
    return [json.loads(done.stdout.splitlines()[-1])]


def benchmark(name: str, ranks: int, simulated: bool, *options: object) -> list[dict[str, object]]:
    """What a benchmark of the folder `bench` writes."""
    program = ["tests/gpu/simulated_bench.py", "--", name] if simulated else [f"bench/{name}.py", "--device", "cuda"]
    with TemporaryDirectory() as folder:
        path = Path(folder, "records")
        done = run([*mpirun(ranks), sys.executable, *program, *map(str, options), "--json", str(path)])
        if done.returncode:
            return failed(name, ranks, done)
        print(done.stdout)
        return [json.loads(line) for line in path.read_text().splitlines()]


def failed(name: str, ranks: int, done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    print(done.stdout[-8000:] + done.stderr[-8000:])
    return [{"program": name, "ranks": ranks, "failed": done.returncode}]


def benchmarks(ranks: list[int], scale: Scale, simulated: bool) -> list[dict[str, object]]:
    found = []
    for n in ranks:
        for name in ("bench_board", "bench_bars"):
            found += measured(name, n, scale, simulated)
    most = max(ranks)
    calls = ["--iterations", scale.iterations, *(["--warmup", 1] if simulated else [])]
    late = ["--skew", "one-late", "--skew-us", scale.late_ms * 1e3]
    small, large = 32768, 1 << (14 if simulated else 20)
    found += benchmark("skew", most, simulated, *calls, "--policy", "solo,majority", "--bytes", large, *late)
    found += benchmark("latency", most, simulated, *calls, "--policy", "solo,full", "--bytes", f"{small},{large}")
    found += benchmark(
        "groups", most, simulated, "--iterations", scale.iterations, "--compute-ms", scale.compute_ms,
        "--model-bytes", 4 * max(1, int(scale.megabytes * 1e6 / 40)),
    )  # fmt: skip
    return found


def machine(simulated: bool) -> dict[str, object]:
    from pycollectives._version import commit
    from pycollectives.support.native import core

    return {
        "where": "simulated driver" if simulated else "gpu",
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit,
        "host": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version(),
        "cuda": core.cuda_availability(),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1 2 4 8")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("record", type=Path)
    options = parser.parse_args()
    ranks = [int(number) for number in options.ranks.split()]
    scale = Scale(options.megabytes, repetitions=20, iterations=64, late_ms=100, compute_ms=200)
    if options.simulated:
        scale = Scale(options.megabytes, repetitions=1, iterations=2, late_ms=10, compute_ms=2)
    record = {"machine": machine(options.simulated), "tests": []}
    if not options.simulated:
        record["tests"] = [
            tests("kernels", [], ["tests/unit/cuda"]),
            *(tests(f"collectives, {n} ranks", mpirun(n), MARKED) for n in ranks),
        ]
    record["benchmarks"] = benchmarks(ranks, scale, options.simulated)
    record["bars"] = bars(record["benchmarks"])
    options.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    wrong = [one for one in record["tests"] if not one["passed"]]
    wrong += [one for one in record["benchmarks"] if "failed" in one or one.get("right") is False]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
