"""Join the traces of several ranks into one file.

With `PYC_TRACE=run.json` the engine writes `run.rankN.json` for every rank, in Chrome's trace format: an object whose
`traceEvents` have the rank as process id and the collective as thread id.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Event = dict[str, Any]


def read_events(path: Path) -> list[Event]:
    """Return the events of a file. If the file is not a trace, a `ValueError` names it."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Event], dict[str, Any]]:
    """Return the events of one file, and its `otherData`: the communicator and its group."""
    try:
        content = json.loads(path.read_text())
        events, source = content["traceEvents"], dict(content.get("otherData", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a trace in Chrome's format: {error!r}") from error
    if not isinstance(events, list) or not all(isinstance(event, dict) and "pid" in event for event in events):
        raise ValueError(f"{path}: expected a trace in Chrome's format, found events without a process")
    return events, source


def merge(paths: Sequence[Path], out: Path) -> int:
    """Write the events of all files into one file, for chrome://tracing or ui.perfetto.dev; return their number.

    Times are from each process's monotonic clock, so only times of ranks on one node are comparable. Raises the same
    errors as `read_run`.
    """
    merged = read_run(paths)
    out.write_text(json.dumps({"traceEvents": merged}) + "\n")
    return len(merged)


def read_run(paths: Sequence[Path]) -> list[Event]:
    """Return the events of all files of a run. Raise ValueError if a file is of another run or a rank has two."""
    merged: list[Event] = []
    origin: dict[Any, Path] = {}
    groups: dict[Any, tuple[Any, Path]] = {}  # by communicator
    for path in paths:
        events, source = _read(path)
        if "group" in source:
            group, first = groups.setdefault(source.get("communicator"), (source["group"], path))
            if group != source["group"]:
                raise ValueError(f"{path}: from a different run than {first}: expected files of one run")
        for rank in {event["pid"] for event in events}:
            if (key := (source.get("communicator"), rank)) in origin:
                raise ValueError(f"{path}: rank {rank} appears twice, first in {origin[key]}")
            origin[key] = path
        merged += events
    return merged
