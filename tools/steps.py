"""Run a list of steps, and stop at the first step that fails or takes 1.5 times its limit.

    python3 tools/steps.py LIST [TITLE]    run the list .ci/LIST.steps, starting with the step of this title

Each line of a list is a step: its limit in seconds, its title and a shell command. The limit is the time of the step on
two idle cores, with a margin for noise. A step waits for the previous one, with two exceptions:

    120 title: command        a step
    & 120 title: command      runs beside the following steps
    &19 120 title: command    the same, with this niceness
    wait title                wait here for a step that runs beside others; the end waits for all

After each step, build/LIST.json gets the steps so far, with their times, limits and numbers of passed tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STRETCH = 1.5
GRACE_S = 30.0
LINE = re.compile(r"(?P<beside>&(?P<nice>\d*) +)?(?P<limit>\d+) +(?P<title>[^:]+): +(?P<command>.+)")
TESTS = re.compile(r"^(### .*|=+ .*\d+ (passed|skipped|deselected).* in .*=+)$", re.MULTILINE)
FAULT = re.compile(
    r"^(FAILED|ERROR|E  ) |^### .*(failed|hung|no test was found)|(^|[^a-z])[Ee]rror: |: (WARNING|ERROR): |"
    r"^\[.*(failed|FAILED)|\.\.Failed$|Sanitizer"
)


@dataclass
class Step:
    """A command with a limit; while it runs, its process and output."""

    title: str
    limit: int
    command: str
    beside: bool = False
    niceness: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    begin: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    status: int | str | None = None

    def log(self, folder: Path) -> Path:
        """Return the file with its output."""
        return folder / f"{re.sub('[^a-z0-9]+', '-', self.title.lower()).strip('-')}.log"

    def start(self, root: Path, folder: Path) -> None:
        """Start it in its own session, so that all its processes can be ended together."""
        command = ["nice", "-n", str(self.niceness), "bash", "-c", self.command]
        with self.log(folder).open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        # If the kernel groups processes by session, the priority of the session counts.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(self.niceness))
        self.begin = time.monotonic()

    def ended(self) -> bool:
        """Return whether it has ended; kill it if it takes too long."""
        assert self.process is not None
        self.seconds = time.monotonic() - self.begin
        before = cpu_seconds_of_children()
        self.status = self.process.poll()
        self.cpu_seconds = cpu_seconds_of_children() - before  # of the command and all processes that it has waited for
        if self.status is None and self.seconds > STRETCH * self.limit:
            self.kill()
            self.status = "too slow"
        return self.status is not None

    def kill(self) -> None:
        """End all processes of its session, including other process groups."""
        assert self.process is not None
        until = time.monotonic() + GRACE_S
        while alive := session(self.process.pid):
            how = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            self.process.poll()  # a zombie counts as alive
            time.sleep(0.5)
        self.process.wait()


def cpu_seconds_of_children() -> float:
    """Return the CPU seconds of ended child processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def session(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = path.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found


def parse(text: str) -> list[Step | str]:
    """Return the steps of a list in order, and titles where it waits for a step."""
    steps: list[Step | str] = []
    for line in filter(None, (one.partition("  # ")[0].strip() for one in text.splitlines())):
        if line.startswith("#"):
            continue
        beside = {one.title for one in steps if isinstance(one, Step) and one.beside}
        if line.startswith("wait "):
            title = line.removeprefix("wait ").strip()
            if title not in beside:
                raise ValueError(f"wait: expected the title of a step above with &, got {title!r}")
            steps.append(title)
        elif found := LINE.fullmatch(line):
            niceness = int(found["nice"] or 0)
            steps.append(
                Step(found["title"], int(found["limit"]), found["command"], found["beside"] is not None, niceness)
            )
        else:
            raise ValueError(f"expected [&[NICENESS]] SECONDS TITLE: COMMAND, or wait TITLE; got {line!r}")
    return steps


class Run:
    """A run of a list."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root
        self.folder = root / "build" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begin = time.monotonic()
        self.started: list[Step] = []
        self.running: list[Step] = []
        self.unseen: list[Step] = []
        self.passed = False
        self.commit = commit(root)

    def all(self, steps: list[Step | str]) -> int:
        """Run the steps; return 1 if one fails, otherwise 0."""
        try:
            for one in steps:
                if isinstance(one, Step):
                    self.started.append(one)
                    self.running.append(one)
                    self.unseen.append(one)
                    one.start(self.root, self.folder)
                    awaited = [] if one.beside else [one]
                else:
                    awaited = [step for step in self.unseen if step.title == one]
                if not all(map(self.wait, awaited)):
                    return 1
            if not all(map(self.wait, self.unseen[:])):
                return 1
        finally:
            for one in self.running:
                one.kill()
        self.passed = True
        self.write()
        self.print_times()
        return 0

    def wait(self, step: Step) -> bool:
        """Wait for a step and show its output; return False if it, or a step beside it, fails."""
        print(f"\n=== {step.title}", flush=True)
        self.unseen.remove(step)
        with step.log(self.folder).open("rb") as log:
            while True:
                ended = [one for one in self.running if one.ended()]
                sys.stdout.buffer.write(log.read())
                sys.stdout.flush()
                for one in ended:
                    self.running.remove(one)
                    self.write()
                for one in ended:
                    if one.status != 0:
                        return self.fail(one, shown=one is step)
                if step not in self.running:
                    return True
                time.sleep(0.2)

    def fail(self, step: Step, *, shown: bool) -> bool:
        """Print the failure; return False."""
        text = step.log(self.folder).read_text(errors="replace")
        if not shown:
            print(f"\n=== {step.title}\n{text}")
        self.print_times()
        print(f"\n=== FAILED: {step.title} (status {step.status})")
        if step.status == "too slow":
            print(f"stopped after {step.seconds:.0f} s, {STRETCH} times its limit of {step.limit} s")
        for line in [line for line in text.splitlines() if FAULT.search(line)][-40:]:
            print(line)
        sys.stdout.flush()
        return False

    def print_times(self) -> None:
        """Print the time of each step."""
        print("\n=== wall time and CPU time")
        for one in self.started:
            how = " (beside others)" if one.beside else ""
            print(f"{one.seconds:5.0f} s of {one.limit:5d} s, {one.cpu_seconds:5.0f} s  {one.title}{how}")
        print(f"{time.monotonic() - self.begin:5.0f} s in all", flush=True)

    def write(self) -> None:
        """Write the record."""
        done: list[dict[str, Any]] = [
            {
                "title": one.title,
                "seconds": round(one.seconds, 1),
                "cpu_seconds": round(one.cpu_seconds, 1),
                "limit": one.limit,
                "beside": one.beside,
                "status": one.status,
                "tests": [found[0] for found in TESTS.finditer(one.log(self.folder).read_text(errors="replace"))],
            }
            for one in self.started
            if one not in self.running
        ]
        record = {
            "list": self.name,
            "commit": self.commit,
            "machine": machine(),
            "passed": self.passed,
            "seconds": round(time.monotonic() - self.begin, 1),
            "steps": done,
        }
        (self.root / "build" / f"{self.name}.json").write_text(json.dumps(record, indent=1) + "\n")


def commit(root: Path) -> str | None:
    """Return the commit of a checkout, with "-dirty" if it has changes; None if there is no checkout."""
    git = ["git", "-C", str(root)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return None if head.returncode else head.stdout.strip() + ("-dirty" if changes else "")


def machine() -> str:
    """Return the processor and the number of cores."""
    names = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{names[0] if names else os.uname().machine}, {len(os.sched_getaffinity(0))} cores"


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run a list; return the status."""
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    steps = parse((root / ".ci" / f"{arguments[0]}.steps").read_text())
    if len(arguments) == 2:
        titles = [one.title if isinstance(one, Step) else "" for one in steps]
        if arguments[1] not in titles:
            sys.exit(f"{arguments[0]}: expected the title of a step, got {arguments[1]!r}")
        steps = steps[titles.index(arguments[1]) :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return Run(arguments[0], root).all(steps)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
