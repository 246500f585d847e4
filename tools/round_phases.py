#!/usr/bin/env python3
"""Print the phases of partial allreduces over messages, from the traces of all ranks of one machine.

    PYC_TRACE=run.json tools/mpirun -n 32 python bench/skew.py --ranks-per-node 1 --policy quorum:16 --no-baseline
    tools/round_phases.py --arrivals 16 run.rank*.json

The output is a JSON object with the median over rounds of each phase, in microseconds. With `--arrivals K`, the first
phase begins when the K-th rank has contributed, as in a quorum. Otherwise it begins at the first start.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from pycollectives.diagnostics.traces import read_events

PHASES = {
    "counted": ("arrival", "start"),
    "root active": ("start", "root"),
    "half active": ("root", "half"),
    "all active": ("half", "all"),
    "last result": ("all", "result"),
    "last return": ("result", "return"),
}
"""The phases, each with its first and last moment."""


def moments(events: list[dict], ranks: int, arrivals: int | None) -> dict[str, float] | None:
    """Return the moments of one round; None if a rank's events are missing."""
    times = defaultdict(list)
    for event in events:
        begin = event["ts"]
        times[event["name"]].append(begin + event["dur"] if event["name"] in ("wait", "result") else begin)
        if event["name"] == "active" and event["pid"] % ranks == 0:
            times["root"].append(begin)
    if min(len(times[name]) for name in ("activated", "result")) < ranks or not times["root"]:
        return None
    activated, begun = sorted(times["activated"]), sorted(times["contribute"])
    start = min(times["start"])
    return {
        "arrival": begun[arrivals - 1] if arrivals and len(begun) >= arrivals else start,
        "start": start,
        "root": min(times["root"]),
        "half": activated[len(activated) // 2],
        "all": activated[-1],
        "result": max(times["result"]),
        "return": max(times["wait"], default=max(times["result"])),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrivals", type=int)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    events = [event for path in options.files for event in read_events(path) if event["ph"] == "X"]
    ranks = len({path.name.split(".communicator")[0] for path in options.files})
    rounds = defaultdict(list)
    for event in events:
        if "round" in event["args"]:
            rounds[event["pid"] // ranks, event["tid"], event["args"]["round"]].append(event)
    found = [one for of in rounds.values() if (one := moments(of, ranks, options.arrivals))]
    if not found:
        parser.error("expected the traces of all ranks over messages, found no complete round")
    phases = {name: round(median(one[end] - one[begin] for one in found), 1) for name, (begin, end) in PHASES.items()}
    print(json.dumps({"ranks": ranks, "rounds": len(found), "phases_us": phases}))


if __name__ == "__main__":
    main()
