"""Settings from the environment; Python reads them only here.

| variable | values | default | meaning |
|---|---|---|---|
| `PYC_PROGRESS` | `thread`, `caller` | `thread` | whether messages move while no call waits |
| `PYC_TIMEOUT` | seconds > 0, or `none` | `none` | default limit of calls that wait for other ranks |
| `PYC_STALL_WARNING` | seconds > 0, or `none` | 30 | when a waiting call names the missing ranks on stderr (engine) |
| `PYC_STRAGGLER_WARNING` | a share >= 0 and < 1, or `none` | `none` | which absent ranks a flush names in the log |
| `PYC_EXIT_TIMEOUT` | seconds, or `none` | 60 | how long a program that ends serves others (engine) |
| `PYC_HEARTBEAT_TIMEOUT` | seconds >= 1, or `none` | `none` | after this silence a machine counts as lost (engine) |
| `PYC_RANKS_PER_NODE` | integer or `all` | `all` | default of `ranks_per_node` of `Communicator` |
| `PYC_CHECK` | `0`, `1` | `0` | whether ranks compare their calls and the results of rounds, for debugging |
| `PYC_TRACE` | a path | none | write `path.rankN.json`, one Chrome trace per rank (engine) |
| `PYC_SELECTION` | a file | the user's, or the built-in one | the table of `algorithm="auto"`: see `tables` |
| `PYC_FLIGHT_ROUNDS` | integer | 256 | rounds that the flight recorder keeps; 0: no recorder (engine) |
| `PYC_DUMP_DIR` | a folder | `.` | where flight records are written; if set, also at a `StallError` (engine) |
| `PYC_SIGUSR2` | 0, 1 | 1 | whether SIGUSR2 writes the flight record (engine) |

Arguments of `Communicator` take precedence. A bad value raises `ValueError` when the first communicator is created.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .typing import Progress

MOST_FLIGHT_ROUNDS = 1_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of the environment; the module's table explains them."""

    progress: Progress = "thread"  # how messages move while no call waits
    timeout: float | None = None  # None: no limit
    trace: Path | None = None
    exit_timeout: float | None = 60.0  # then the program ends the job; None: no limit
    heartbeat_timeout: float | None = None  # None: never
    ranks_per_node: int | None = None  # None for all, 1 for none
    check: bool = False
    flight_rounds: int = 256  # of all collectives together; 0: none
    dump_dir: Path | None = None
    sigusr2: bool = True  # if the signal has no handler yet
    stall_warning: float | None = 30.0  # None: never
    straggler_warning: float | None = None  # a share of the rounds; None: never


def checked_progress(value: object, what: str = "progress") -> Progress:
    """Return `value` if it is "thread" or "caller"; otherwise raise a `ValueError` that begins with `what`."""
    if value == "thread":
        return "thread"
    if value == "caller":
        return "caller"
    raise ValueError(f"{what}: expected 'thread' or 'caller', got {value!r}")


def straggler_share(environment: Mapping[str, str] = os.environ) -> float | None:
    """Read `PYC_STRAGGLER_WARNING`."""
    share = environment.get("PYC_STRAGGLER_WARNING") or "none"
    if not (share == "none" or re.fullmatch(r"0?\.[0-9]+|0", share)):
        raise ValueError(f"environment variable PYC_STRAGGLER_WARNING: expected a share < 1 or 'none', got {share!r}")
    return None if share == "none" else float(share)


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; ValueError names the variable, the expected values and the found value.

    >>> settings({"PYC_TIMEOUT": "30"}).timeout
    30.0
    """
    progress = checked_progress(environment.get("PYC_PROGRESS") or "thread", "environment variable PYC_PROGRESS")
    timeout = _limit(environment, "PYC_TIMEOUT", "none", "> 0")
    stall_warning = _limit(environment, "PYC_STALL_WARNING", "30", "> 0")  # the engine reads it too
    heartbeat_timeout = _limit(environment, "PYC_HEARTBEAT_TIMEOUT", "none", ">= 1")
    exit_timeout = _limit(environment, "PYC_EXIT_TIMEOUT", "60")
    ranks_per_node = checked_ranks_per_node(
        environment.get("PYC_RANKS_PER_NODE") or "all", "environment variable PYC_RANKS_PER_NODE"
    )
    trace = environment.get("PYC_TRACE")
    if trace and not _can_write_in(Path(trace).absolute().parent):
        raise ValueError(f"environment variable PYC_TRACE: expected a path in a writable folder, got {trace!r}")
    check = environment.get("PYC_CHECK") or "0"
    if check not in ("0", "1"):
        raise ValueError(f"environment variable PYC_CHECK: expected '0' or '1', got {check!r}")
    flight_rounds = environment.get("PYC_FLIGHT_ROUNDS") or "256"
    if not flight_rounds.isdecimal() or int(flight_rounds) > MOST_FLIGHT_ROUNDS:
        raise ValueError(
            "environment variable PYC_FLIGHT_ROUNDS: expected an integer from 0 to "
            f"{MOST_FLIGHT_ROUNDS}, got {flight_rounds!r}"
        )
    dump_dir = environment.get("PYC_DUMP_DIR")
    if dump_dir and not _can_write_in(Path(dump_dir)):
        raise ValueError(f"environment variable PYC_DUMP_DIR: expected a writable folder, got {dump_dir!r}")
    sigusr2 = environment.get("PYC_SIGUSR2") or "1"
    if sigusr2 not in {"0", "1"}:
        raise ValueError(f"environment variable PYC_SIGUSR2: expected 0 or 1, got {sigusr2!r}")
    return Settings(
        progress,
        timeout,
        Path(trace) if trace else None,
        exit_timeout,
        heartbeat_timeout,
        ranks_per_node,
        check == "1",
        int(flight_rounds),
        Path(dump_dir) if dump_dir else None,
        sigusr2 == "1",
        stall_warning,
        straggler_share(environment),
    )


def _can_write_in(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _limit(environment: Mapping[str, str], variable: str, default: str, bound: str = ">= 0") -> float | None:
    """Return the seconds of a variable; None for "none" or "inf"."""
    text = environment.get(variable) or default
    try:
        seconds = math.inf if text == "none" else float(text)
    except ValueError:
        seconds = math.nan
    is_refused = {">= 0": seconds < 0, "> 0": seconds <= 0, ">= 1": seconds < 1}[bound]
    if math.isnan(seconds) or is_refused:
        raise ValueError(f"environment variable {variable}: expected seconds {bound} or 'none', got {text!r}")
    return None if seconds == math.inf else seconds


def checked_ranks_per_node(value: object, what: str = "ranks_per_node") -> int | None:
    """Return the number of ranks per node, or None for "all"; ValueError for other values."""
    if value == "all":
        return None
    if isinstance(value, str) and value.isdecimal():  # from the environment
        value = int(value)
    number = 0 if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)
    if number < 1:
        raise ValueError(f"{what}: expected an integer of at least 1 or 'all', got {value!r}")
    return number


def selection_files(environment: Mapping[str, str] = os.environ) -> tuple[Path | None, Path | None]:
    """Return the paths of selection tables, `PYC_SELECTION` and the user's; None for a path that is not set.

    >>> selection_files({"PYC_SELECTION": "table.json", "XDG_CONFIG_HOME": "/etc/xdg"})
    (PosixPath('table.json'), PosixPath('/etc/xdg/pycollectives/selection.json'))
    """
    return _selection_files(
        environment.get("PYC_SELECTION"), environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME")
    )


@functools.lru_cache(maxsize=8)
def _selection_files(named: str | None, folder: str, home: str | None) -> tuple[Path | None, Path | None]:
    if not Path(folder).is_absolute():  # the XDG Base Directory Specification ignores relative ones
        folder = os.path.join(home or os.path.expanduser("~"), ".config")
    users = Path(folder) / "pycollectives" / "selection.json"
    return Path(named) if named else None, users if users.is_absolute() else None
