"""Flight records of running programs: requests the records of processes on this machine, and joins them.

A process with a communicator writes its record when it receives SIGUSR2 (docs/tutorial.md, "When it hangs"). A thread
named `pyc-flight` shows that the process answers the signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROC = Path("/proc")
THREAD = "pyc-flight"
POLL_S = 0.02

JOBS = {"SLURM_JOB_ID": "SLURM job", "PMIX_NAMESPACE": "MPI job", "PMI_KVSNAME": "MPI job"}
"""The variables that name the job of a process, with the kind of job."""

Document = dict[str, Any]
"""The file of one process: `communicators` has a record for each communicator."""

Record = dict[str, Any]
"""The result of `Communicator.flight_record`."""


class DumpError(RuntimeError):
    """A process cannot provide a record; the message gives the process and the reason."""


# --- Asking processes -------------------------------------------------------------------------------------------------


def listening() -> list[int]:
    """Return the processes of this user on this machine that answer SIGUSR2 with their record."""
    found = []
    for folder in PROC.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if folder.name.isdecimal() and folder.stat().st_uid == os.getuid() and _listens(folder):
                found.append(int(folder.name))
    return sorted(found)


def jobs(pids: Iterable[int]) -> dict[str, list[int]]:
    """Return the processes of each job: a SLURM job, a launcher's job, or the children of one process."""
    found: dict[str, list[int]] = defaultdict(list)
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            parent = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1]
            names = (f"{kind} {name}" for key, kind in JOBS.items() if (name := _variable(PROC / str(pid), key)))
            found[next(names, f"started by process {parent}")].append(pid)
    return dict(found)


def _variable(proc: Path, name: str) -> str:
    """Return a variable of a process's initial environment; "" if the variable is not set."""
    variables = (proc / "environ").read_bytes().split(b"\0")
    start = f"{name}=".encode()
    return os.fsdecode(next((v.removeprefix(start) for v in variables if v.startswith(start)), b""))


def request(pids: Sequence[int], timeout: float = 5.0) -> tuple[dict[Path, Document], list[str]]:
    """Request the records of processes; return the files' contents, and a line for each process without a record.

    Processes that do not answer SIGUSR2 receive no signal, and their lines give the reason. `timeout`: seconds to wait.
    """
    folders: dict[int, Path] = {}
    silent = []
    for pid in pids:
        try:
            folders[pid] = _checked(pid)
        except DumpError as error:
            silent.append(str(error))
    before = {pid: _files(folder, pid) for pid, folder in folders.items()}
    documents: dict[Path, Document] = {}
    deadline = time.monotonic() + timeout
    for pid in folders:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
    for pid, folder in folders.items():
        while not (new := _files(folder, pid) - before[pid]) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if new:  # complete, because the engine renames a finished file
            path = max(new, key=lambda file: file[1])[0]
            with contextlib.suppress(FileNotFoundError):  # another command has deleted it
                documents[path] = json.loads(path.read_text())
        else:
            silent.append(f"process {pid} {_excuse(pid, folder, timeout)}")
    return documents, silent


def files_of(pids: Iterable[int]) -> set[Path]:
    """Return the record files that the processes have written, if any."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(DumpError):
            found |= {path for path, *_ in _files(_checked(pid), pid)}
    return found


def _checked(pid: int) -> Path:
    """Return the folder in which the process writes records; `DumpError` if it would not answer."""
    proc = PROC / str(pid)
    try:
        if not _listens(proc):
            raise DumpError(
                f"process {pid} would not answer SIGUSR2: it has no pycollectives communicator yet, or was started "
                "with PYC_SIGUSR2=0 or PYC_FLIGHT_ROUNDS=0, or had its own handler for the signal"
            )
        return Path(os.path.realpath(proc / "cwd"), _variable(proc, "PYC_DUMP_DIR"))
    except (FileNotFoundError, ProcessLookupError):
        raise DumpError(f"there is no process {pid} on this machine") from None
    except PermissionError:
        raise DumpError(f"process {pid}: no permission, because it belongs to user {proc.stat().st_uid}") from None


def _listens(proc: Path) -> bool:
    """Whether the process has our thread and a handler, without which the signal would end the process."""
    status = (proc / "status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGUSR2 - 1) & 1
    for task in proc.glob("task/*/comm") if caught else ():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            if task.read_text().strip() == THREAD:
                return True
    return False


def _files(folder: Path, pid: int) -> set[tuple[Path, int, int]]:
    """Return the process's record files, with time and inode, which identify new files."""
    found = set()
    for path in folder.glob(f"pycollectives-*-rank*-{pid}.json"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path, path.stat().st_mtime_ns, path.stat().st_ino))
    return found


def _excuse(pid: int, folder: Path, timeout: float) -> str:
    """Return the reason why a process has written no file."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "has ended without an answer"
    if state in "Tt":
        return "is stopped (SIGSTOP or a debugger) and will answer when it continues"
    return f"wrote no record into {folder} within {timeout:g} s; its stderr may say why"


# --- Joining records --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The state of one rank in one collective, or in the communicator itself."""

    rank: int
    pid: int
    group: str
    """The communicator: the same text for all of its ranks."""
    collective: str
    round: int | None
    """The newest round that this rank knows of."""
    state: str
    waiting: str
    """What this rank waits for in this collective, and how long; empty if it does not wait."""
    not_arrived: tuple[int, ...]
    """Ranks with a record that have not arrived where this rank waits."""
    unknown: tuple[int, ...]
    """Ranks without a record: on other machines, or silent."""


def rows(documents: Iterable[Document]) -> list[Row]:
    """Return the rows of a table, ordered by communicator, collective and rank."""
    groups: dict[str, dict[int, Record]] = defaultdict(dict)
    for document in documents:
        for record in document["communicators"]:
            groups[record["group"]][record["rank"]] = {**record, "pid": document["pid"]}
    found = []
    for group, records in sorted(groups.items()):
        ids = sorted({c["collective"] for record in records.values() for c in record["collectives"]})
        for number in ids:
            for rank in sorted(records):
                described = _of(records[rank], number)
                if described and described["state"] != "ended" and (number or "wait" in described or len(ids) == 1):
                    found.append(_row(group, records[rank], described, records))
    return found


def _row(group: str, record: Record, described: dict[str, Any], records: dict[int, Record]) -> Row:
    number = described["collective"]
    newest = next((r for r in reversed(record["rounds"]) if r["collective"] == number), None)
    state = described["state"]
    if state == "open":
        state = newest["state"] if newest else "no round yet" if number else "idle"
    wait = described.get("wait")
    waiting = ""
    absent: list[int] = []
    if wait:
        what = f"{wait['for']} {wait['round']}" if "round" in wait else wait["for"]
        waiting = f"{what}, {'gave up after' if wait['gave_up'] else 'for'} {wait['waited_s']:.1f} s"
        absent = [rank for rank in sorted(records) if not _has_come(records[rank], number, wait)]
        state = "waiting" if number == 0 else state
    return Row(
        rank=record["rank"],
        pid=record["pid"],
        group=group,
        collective=described["name"],
        round=newest["round"] if newest else None,
        state=state,
        waiting=waiting,
        not_arrived=tuple(absent),
        unknown=tuple(rank for rank in range(record["size"]) if rank not in records) if wait else (),
    )


def _of(record: Record, number: int) -> dict[str, Any] | None:
    return next((c for c in record["collectives"] if c["collective"] == number), None)


def _has_come(record: Record, number: int, wait: dict[str, Any]) -> bool:
    """Whether the record's rank has done what another rank's `wait` is for."""
    described = _of(record, number)
    if described is None:
        return False
    own = described.get("wait", {})
    if number == 0:
        return bool(own.get("for") == wait["for"])
    if described["state"] != "open" or own.get("for") == "flush":
        return True
    if "round" not in wait:
        return False
    ours = (r for r in record["rounds"] if r["collective"] == number and r["round"] == wait["round"])
    return described["completed_rounds"] > wait["round"] or any("called_s" in r for r in ours)
