"""tools/round_phases.py: the phases of a round, from traces of all ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "round_phases.py"


def event(rank: int, name: str, begin: float, duration: float = 0.0) -> dict:
    return {"ph": "X", "name": name, "pid": rank, "tid": 1, "ts": begin, "dur": duration, "args": {"round": 3}}


OF_RANKS = [
    [("contribute", 10), ("active", 70), ("activated", 71), ("result", 110, 5)],
    [("contribute", 20), ("activated", 100), ("result", 120, 8), ("wait", 21, 109)],
    [("contribute", 90), ("start", 50), ("active", 50), ("activated", 80), ("result", 99)],
]
ROUND = [event(rank, *what) for rank, events in enumerate(OF_RANKS) for what in events]


def run(folder: Path, events: list[dict], *options: str) -> subprocess.CompletedProcess[str]:
    files = []
    for rank in range(3):
        files.append(folder / f"run.rank{rank}.json")
        files[-1].write_text(json.dumps({"traceEvents": [one for one in events if one["pid"] == rank]}))
    command = [sys.executable, str(SCRIPT), *options, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_phases_of_a_round(tmp_path):
    found = json.loads(run(tmp_path, ROUND, "--arrivals", "2").stdout)
    assert (found["ranks"], found["rounds"]) == (3, 1)
    assert found["phases_us"] == {
        "counted": 30,
        "root active": 20,
        "half active": 10,
        "all active": 20,
        "last result": 28,
        "last return": 2,
    }
    assert json.loads(run(tmp_path, ROUND).stdout)["phases_us"]["counted"] == 0


def test_a_round_that_a_rank_lacks_does_not_count(tmp_path):
    done = run(tmp_path, [one for one in ROUND if one["pid"] < 2])
    assert done.returncode == 2
    assert "found no complete round" in done.stderr
