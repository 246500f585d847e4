"""Runs everything that needs a GPU, part by part, and keeps a record of it; tests/gpu/offline.sh calls this.

The record, FOLDER/gpu.json, is written before and after each part. A part that fails or reaches its limit does not stop
the next ones. A part that ends early leaves its time to them. FOLDER/log.txt has the output of all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import limited
from bars import bars
from parts import RESULTS, Part, Plan

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "gpu-venv"
SECONDS = 480
RESERVE = 15
"""Seconds of the total for ending processes and writing the record."""

Record = dict[str, Any]


# --- Results of a part ------------------------------------------------------------------------------------------------


def keep_results(record: Record, part: Part, done: bool, results: Path) -> bool:
    """Add what a part has written to the record. Whether all of it is right."""
    if part.section == "build":
        return done
    path = results / "records"
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]  # what follows the last newline is half a line
    found = [json.loads(line) for line in lines]
    if part.section == "tests":
        # A rehearsal skips what only a GPU has.
        summary = summary_of(part.name, found, may_skip=record["machine"]["where"] != "gpu")
        summary["right"] &= done
        record["tests"].append(summary)
        return bool(summary["right"])
    if part.section == "probe":
        for one in found:
            record["machine"].update(one.pop("machine", {}))
    record[part.section] += found
    if not done and part.section == "benchmarks":
        record["benchmarks"].append({"part": part.name, "failed": True})
    record["bars"] = bars(record["benchmarks"])
    return done and bool(found) and all(one.get("right", True) for one in found)


def summary_of(name: str, lines: list[Record], *, may_skip: bool) -> Record:
    """How many tests, of all ranks, had which outcome; and each that has not passed."""
    outcomes: dict[tuple[str, int], str] = {}
    for line in lines:
        key = (line["test"], line["rank"])
        if outcomes.get(key) != "failed":  # a test that fails may have an error at its end too
            outcomes[key] = line["outcome"]
    counted = Counter(outcomes.values())
    wrong = {f"{test}, rank {rank}": one for (test, rank), one in outcomes.items() if one not in ("passed", "skipped")}
    right = bool(outcomes) and not wrong and (may_skip or not counted["skipped"])
    return {"name": name, "right": right, "tests": len(outcomes), **counted, "wrong": wrong}


# --- The run ----------------------------------------------------------------------------------------------------------


class Run:
    """A record that grows part by part."""

    def __init__(self, folder: Path, record: Record, seconds: float, environment: dict[str, str]):
        self._folder, self._record, self._environment = folder, record, environment
        self._begin = time.monotonic()
        self._end = self._begin + seconds - RESERVE
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log.txt"
        limited.adopt_orphans()

    def go(self, parts: list[Part]) -> bool:
        """Whether all parts are done, and everything is right. Time beyond the sum of the limits stretches them."""
        stretch = max(1.0, (self._end - self._begin) / sum(part.limit for part in parts))
        turn = self._begin
        for part in parts:
            turn = min(turn + stretch * part.limit, self._end)
            self._run(part, turn)
            if part.section == "build" and self._record["parts"][-1]["status"] != "done":
                break
        return len(self._record["parts"]) == len(parts) and all(
            one["status"] == "done" for one in self._record["parts"]
        )

    def _run(self, part: Part, turn: float) -> None:
        left = turn - time.monotonic()
        entry = {"part": part.name, "status": "running", "limit_s": round(left, 1)}
        self._record["parts"].append(entry)
        if left <= 0:
            entry["status"] = "not started"
            self._write()
            return
        self._write()
        with TemporaryDirectory() as results:
            command = [word.replace(RESULTS, results) for word in part.command]
            self._say(f"\n### {part.name}, at most {left:.0f} s\n+ {' '.join(command)}\n")
            ended = limited.run(command, left, self._log, self._environment, ROOT)
            entry["seconds"] = round(ended.seconds, 1)
            try:
                right = keep_results(self._record, part, ended.status == 0, Path(results))
            except Exception as error:  # of a half-written report, say; other parts have their turn
                right, entry["error"] = False, f"{type(error).__name__}: {error}"
        entry["status"] = "done" if right else "stopped at its limit" if ended.status is None else "failed"
        self._say(f"### {part.name}: {entry['status']} after {ended.seconds:.1f} s\n")
        print(f"{entry['status']:>20} {ended.seconds:6.1f} s  {part.name}", flush=True)
        self._write()

    def _say(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(text)

    def _write(self) -> None:
        """At once: a reader never sees half of it."""
        path = self._folder / "gpu.json"
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(self._record, indent=1) + "\n")
        unfinished.replace(path)


def environment_of(prefix: Path, rehearsed: bool) -> dict[str, str]:
    """Variables for programs of the environment; the build uses the Python that runs this."""
    return {
        **os.environ, "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **({"PYC_SIMULATED_GPU": "1"} if rehearsed else {"PYC_REQUIRE_CUDA": "1"}),
    }  # fmt: skip


def new_record(rehearsed: bool) -> Record:
    machine = {
        "where": "simulated driver" if rehearsed else "gpu",
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version(),
    }  # fmt: skip
    return {"machine": machine, "parts": [], "probe": [], "tests": [], "benchmarks": [], "bars": []}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="on the simulated driver, whose times mean nothing")
    parser.add_argument("--environment", type=Path, help="run programs of this environment, and build none")
    parser.add_argument("--only", default="", metavar="REGEX", help="leave out other parts, but not the build")
    parser.add_argument("--ranks", default="1 2 4")
    parser.add_argument("--megabytes", type=float, help="values of each rank (default: 100, or 0.02 in a rehearsal)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in all (default: %(default)s)")
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("OUT") or ROOT / "build" / "gpu-record")
    options = parser.parse_args()
    prefix = (options.environment or ENVIRONMENT).absolute()
    ranks = [int(number) for number in options.ranks.split()]
    megabytes = options.megabytes or (0.02 if options.rehearse else 100.0)
    plan = Plan(ranks, megabytes, options.rehearse, str(prefix / "bin" / "python"))
    parts = [part for part in plan.parts() if part.section == "build" or re.search(options.only, part.name)]
    if options.environment:
        parts = [part for part in parts if part.section != "build"]
    record = new_record(options.rehearse)
    is_right = Run(options.folder, record, options.seconds, environment_of(prefix, options.rehearse)).go(parts)
    for bar in record["bars"]:
        print(f"{bar['value']:10g}, of at least {bar['at_least']:g}: {bar['bar']}, {bar['ranks']} ranks")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
