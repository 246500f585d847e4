"""Runs what needs a GPU, and writes a record of it; tests/gpu/run.sh prepares the machine and calls this."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    print("+", *command, flush=True)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)


def mpirun(ranks: int) -> list[str]:
    return ["tools/mpirun", "-n", str(ranks)]


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


def benchmark(ranks: int, megabytes: str) -> dict[str, object]:
    done = run([*mpirun(ranks), sys.executable, "tests/gpu/bench_board.py", "--megabytes", megabytes])
    if done.returncode:
        print(done.stdout[-8000:] + done.stderr[-8000:])
        return {"program": "bench_board", "ranks": ranks, "failed": done.returncode}
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> dict[str, object]:
    from pycollectives._version import commit
    from pycollectives.support.native import core

    found = core.cuda_availability()
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit,
        "host": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version(), "cuda": found,
        "kernels": "nvcc" if core.testing.fat_binary() else "NVRTC",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="1 2 4 8")
    parser.add_argument("--megabytes", default="100")
    parser.add_argument("record", type=Path)
    options = parser.parse_args()
    ranks = [int(number) for number in options.ranks.split()]
    record = {
        "machine": machine(),
        "tests": [
            tests("kernels", [], ["tests/unit/cuda"]),
            *(tests(f"board, {n} ranks", mpirun(n), ["tests/gpu"]) for n in ranks),
        ],
        "benchmarks": [benchmark(n, options.megabytes) for n in ranks],
    }
    options.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    failed = [one for one in record["tests"] if not one["passed"]]
    failed += [one for one in record["benchmarks"] if not one.get("right")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
