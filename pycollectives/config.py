"""Settings from the environment: read here and nowhere else in Python.

| variable | values | default | meaning |
|---|---|---|---|
| `PYC_PROGRESS` | `thread`, `caller` | `thread` | who moves messages while no call waits |
| `PYC_TIMEOUT` | seconds > 0, or `none` | `none` | default limit for creating, flushing and closing collectives |
| `PYC_EXIT_TIMEOUT` | seconds, or `none` | 60 | how long MPI_Finalize serves others that have not closed (engine) |
| `PYC_RANKS_PER_NODE` | integer | 1 | default of `ranks_per_node` of `Communicator` |
| `PYC_TRACE` | a path | none | write `path.rankN.json`, one Chrome trace per rank (engine) |

Arguments of `Communicator` have precedence. A bad value raises `ValueError` when the first communicator is created.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .typing import Progress

__all__ = ["Settings", "checked_progress", "checked_timeout", "settings"]


@dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes
    ----------
    progress
        "thread" or "caller".
    timeout
        Seconds, or None for no limit.
    trace
        Where the engine writes its trace, or None.
    exit_timeout
        Seconds that the end of the program waits for other ranks to close what it left open, or None for no limit;
        then it ends the job.
    ranks_per_node
        Ranks that work together in shared memory; 1: none do.
    """

    progress: Progress = "thread"
    timeout: float | None = None
    trace: Path | None = None
    exit_timeout: float | None = 60.0
    ranks_per_node: int = 1


def checked_progress(value: object, what: str = "progress") -> Progress:
    """Return `value` if it is a way of making progress; else `ValueError`, which calls it `what`."""
    if value == "thread":
        return "thread"
    if value == "caller":
        return "caller"
    raise ValueError(f"{what}: expected 'thread' or 'caller', got {value!r}")


def checked_timeout(value: float | str | None, what: str = "timeout") -> float | None:
    """Return a limit in seconds, or None for none; else `ValueError` or `TypeError`, which calls it `what`."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    except TypeError:
        raise TypeError(f"{what}: expected seconds or None, got {value!r}") from None
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{what}: expected seconds >= 0, got {value!r}")
    return None if math.isinf(seconds) else seconds


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings.

    Raises
    ------
    ValueError
        Names the variable, what was expected and what it holds.

    >>> settings({"PYC_TIMEOUT": "30"}).timeout
    30.0
    """
    progress = checked_progress(environment.get("PYC_PROGRESS") or "thread", "environment variable PYC_PROGRESS")
    limit = environment.get("PYC_TIMEOUT") or "none"
    timeout = None if limit == "none" else checked_timeout(limit, "environment variable PYC_TIMEOUT")
    if timeout == 0:
        raise ValueError("environment variable PYC_TIMEOUT: expected seconds > 0 or 'none', got '0'")
    at_exit = environment.get("PYC_EXIT_TIMEOUT") or "60"
    exit_timeout = None if at_exit == "none" else checked_timeout(at_exit, "environment variable PYC_EXIT_TIMEOUT")
    ranks_per_node = _ranks_per_node(environment.get("PYC_RANKS_PER_NODE") or "1")
    trace = environment.get("PYC_TRACE")
    if trace and not Path(trace).absolute().parent.is_dir():
        raise ValueError(f"environment variable PYC_TRACE: expected a path in an existing folder, got {trace!r}")
    return Settings(progress, timeout, Path(trace) if trace else None, exit_timeout, ranks_per_node)


def _ranks_per_node(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"environment variable PYC_RANKS_PER_NODE: expected an integer of at least 1, got {text!r}")
    return int(text)
