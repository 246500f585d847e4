"""Other ways to survive deaths, for the same model and kills as `survive`: torchft, and checkpoint and restart.

Processes log the time and number of each step that they complete, and how many ranks took part.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .errors import RunError
from .mpis import OPEN_MPI, Setting, job_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

WORKERS = Path(__file__).parent
LIMIT_S = 180.0
"""For the start of all processes, and after each kill."""
SETTLE_S = 2.0
"""From the first step of all to the measured time."""
LOOK_S = 0.02
HEARTBEAT_MS, TIMEOUT_S, JOIN_MS = 1000, 2.0, 1000
"""torchft's limits of a silent replica, an allreduce, and the wait for a new replica. Its defaults are 5 s, 60 s
and 60 s. With still shorter ones, living replicas are left out on a loaded machine."""


class Row(NamedTuple):
    """A step that a process has completed."""

    time: float  # of the monotonic clock, which processes of a machine share
    step: int
    ranks: int


class Measured(NamedTuple):
    """Seconds from the kill to the next step of each survivor, and to the first step of each of all ranks again."""

    next: list[float]
    full: list[float]
    goodput: float
    steps_per_s: float  # without deaths


class Fleet(ABC):
    """Processes that make steps together. `numbers` are their places, which replaced ones keep."""

    def __init__(self, ranks: int, folder: Path) -> None:
        self.ranks, self._folder = ranks, folder
        self.numbers = list(range(ranks))
        self.processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self, number: int) -> float:
        """Kill a process; return the time."""

    @abstractmethod
    def heal(self, number: int) -> None:
        """Start what replaces a killed process."""

    @abstractmethod
    def next_of(self, number: int, killed: int, when: float) -> Row | None:
        """Return the first step of a process after the kill of another one; None before it."""

    def full_of(self, number: int, when: float) -> Row | None:
        """Return the first step of a process with all ranks again."""
        joined = [row.time for row in self.newest_rows(self.healed) if row.ranks == self.ranks and row.time > when]
        full = (row for row in self.rows(number) if joined and row.time > when and row.ranks == self.ranks)
        return next((row for row in full if row.time >= min(joined) - LOOK_S), None)

    healed = 0  # the newest number

    def run(self, command: list[str], variables: dict[str, str], name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.err").open("ab") as errors:
            process = subprocess.Popen(
                command,
                env=variables,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def rows(self, number: int) -> list[Row]:
        """Return the steps of all processes that had this place."""
        files = sorted(self._folder.glob(f"{number}.*.log"), key=lambda file: file.stat().st_mtime)
        return sorted(row for file in files for row in read(file))

    def newest_rows(self, number: int) -> list[Row]:
        files = list(self._folder.glob(f"{number}.*.log"))
        return read(max(files, key=lambda file: file.stat().st_ctime)) if files else []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, since the next measurement needs the cores."""
        ranks = [int(file.read_text()) for file in self._folder.glob("*.pid")]
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for rank in ranks:
            while _is_python(rank):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
                time.sleep(LOOK_S)


def _is_python(process: int) -> bool:
    """Whether the process of a rank is alive."""
    try:
        command, state = Path(f"/proc/{process}/cmdline").read_bytes(), Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return b"restart_worker" in command and state.rpartition(")")[2].split()[0] != "Z"


def read(file: Path) -> list[Row]:
    """Return the complete lines of a log."""
    lines = file.read_text().split("\n")[:-1]
    return [Row(float(when), int(step), int(ranks)) for when, step, ranks in map(str.split, lines)]


class Torchft(Fleet):
    """A replica per process, as in torchft's example, and a lighthouse."""

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._variables = job_variables(os.environ, OPEN_MPI, Setting("default"), str(Path(sys.executable).parent))
        self._variables |= {"TORCHFT_LIGHTHOUSE": f"http://{address}", "OMP_NUM_THREADS": "1", "RUST_LOG": "error"}
        limits = ["--heartbeat_timeout_ms", str(HEARTBEAT_MS), "--join_timeout_ms", str(JOIN_MS)]
        serve = [lighthouse(), "--bind", address, "--min_replicas", "1", "--quorum_tick_ms", "100", *limits]
        self.run(serve, self._variables, "lighthouse")
        self._of: dict[int, subprocess.Popen[bytes]] = {}
        for number in self.numbers:
            self.heal(number)

    def heal(self, number: int) -> None:
        self.healed = number
        log = self._folder / f"{number}.{len(self.processes)}.log"
        command = [sys.executable, str(WORKERS / "torchft_worker.py"), str(number), str(TIMEOUT_S), str(log)]
        self._of[number] = self.run(command, self._variables, str(number))
        self._joins_after = time.monotonic()

    def kill(self, number: int) -> float:
        when = time.monotonic()
        self._of[number].kill()
        self._of[number].wait()
        self._joins_after = LIMIT_S + when
        return when

    def next_of(self, number: int, killed: int, when: float) -> Row | None:
        joined = min((row.time for row in self.newest_rows(killed) if row.time > self._joins_after), default=np.inf)
        before = max((row.ranks for row in self.rows(number) if row.time < when), default=self.ranks)
        after = (row for row in self.rows(number) if row.time > when)
        return next((row for row in after if row.ranks < before or row.time >= joined - LOOK_S), None)


class Restart(Fleet):
    """A job of MPI without fault tolerance. After a death it is started again, and reads its newest checkpoint."""

    def start(self) -> None:
        folder = str(Path(sys.executable).parent)
        self._variables = job_variables(os.environ, OPEN_MPI, Setting("default"), folder) | {"OMP_NUM_THREADS": "1"}
        self._attempt, self._best, self._job = 0, -1, None
        self._launch()

    def _launch(self) -> None:
        self._attempt += 1
        launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(self.ranks), sys.executable]
        worker = [str(WORKERS / "restart_worker.py"), str(self._attempt), str(self._folder)]
        self._job = self.run([*launch, *worker], self._variables, "job")

    def kill(self, number: int) -> float:
        assert self._job is not None
        process = int((self._folder / f"{number}.{self._attempt}.pid").read_text())
        when = time.monotonic()
        os.kill(process, signal.SIGKILL)
        self._job.wait()  # the launcher ends the other ranks
        self._best = max(row.step for each in self.numbers for row in self.rows(each))
        self._launch()
        return when

    def heal(self, number: int) -> None:
        self.healed = number  # the job has been started with all ranks

    def next_of(self, number: int, killed: int, when: float) -> Row | None:
        del killed
        return next((row for row in self.rows(number) if row.time > when and row.step > self._best), None)

    def full_of(self, number: int, when: float) -> Row | None:
        return self.next_of(number, number, when)


BASELINES = {"torchft": Torchft, "restart": Restart}


def lighthouse() -> str:
    beside = Path(sys.executable).parent / "torchft_lighthouse"
    return str(beside) if beside.exists() else shutil.which("torchft_lighthouse") or ""


def require_installed(names: list[str]) -> None:
    """ValueError if a baseline cannot run."""
    if importlib.util.find_spec("torch") is None:
        raise ValueError("the baselines need PyTorch: pip install torch")
    if "torchft" in names and (importlib.util.find_spec("torchft") is None or not lighthouse()):
        raise ValueError("torchft is not installed: pip install torchft")


def measure(name: str, *, ranks: int, deaths: Sequence[tuple[float, np.random.Generator]], heals: bool) -> Measured:
    """Measure a baseline on this machine. Without `heals`, torchft's dead replicas are not started again.

    `deaths`: the seconds before each, and what draws who dies.
    """
    nexts, fulls, first = [], [], 0.0
    with tempfile.TemporaryDirectory() as folder, BASELINES[name](ranks, Path(folder)) as fleet:

        def wait(what: str, found: Callable[[int], Row | None], numbers: list[int]) -> list[float]:
            limit = time.monotonic() + LIMIT_S
            while not all(rows := [found(number) for number in numbers]):
                if time.monotonic() > limit:
                    errors = "\n".join(file.read_text()[-1000:] for file in sorted(Path(folder).glob("*.err")))
                    raise RunError(f"{name} made no step {what} within {LIMIT_S:g} s\n{errors}")
                time.sleep(LOOK_S)
            return [row.time for row in rows if row]

        def whole(number: int) -> Row | None:
            return next((row for row in fleet.rows(number) if row.ranks == ranks), None)

        wait("of all ranks", whole, fleet.numbers)
        time.sleep(SETTLE_S)
        begin, live = time.monotonic(), list(fleet.numbers)
        for delay, draw in deaths:
            time.sleep(delay)
            victim = int(draw.choice(live))
            when = fleet.kill(victim)
            first = first or when
            if heals:
                fleet.heal(victim)
            live = [number for number in live if number != victim]
            times = wait("after a kill", lambda number, v=victim, w=when: fleet.next_of(number, v, w), live)
            nexts += [at - when for at in times]
            if heals:
                live = list(fleet.numbers)
                times = wait("of all again", lambda number, w=when: fleet.full_of(number, w), live)
                fulls += [at - when for at in times]
        end = time.monotonic()
        rows = sorted((row for number in fleet.numbers for row in fleet.rows(number)), reverse=True)
        work = {row.step: row for row in rows if begin < row.time <= end}  # the first time that a step was made
        rate = sum(row.ranks for row in work.values() if row.time < first) / (first - begin)
        done = sum(row.ranks for row in work.values())
    return Measured(nexts, fulls, done / (rate * (end - begin)), rate / ranks)
