"""Run benchmarks for docs/results. Only results with a clean version and commit are accepted."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pycollectives.diagnostics.provenance import commit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"

BUILT_FROM = ("csrc", "pycollectives", "bench", "CMakeLists.txt", "CMakePresets.json", "setup.py", "pyproject.toml")

UNCLEAN = ("-dirty", "unknown", '"commit": null', "commit None")


class UncleanError(Exception):
    """The measured sources are not identified by a commit."""


@dataclass(frozen=True)
class Measurement:
    """A benchmark and its options."""

    ranks: int | None  # None if the script starts its jobs itself
    script: Sequence[str]
    hosts: Sequence[str] = ()  # the arguments of tools/hosts; empty for all ranks on this machine
    options: Sequence[str] = ()  # options of the launcher

    def command(self, lines: Path) -> list[str]:
        """Return the command line. `lines`: the file for JSON lines."""
        cluster = ["tools/hosts", *self.hosts] if self.hosts else []
        launcher = [] if self.ranks is None else ["tools/mpirun", *self.options, "-n", str(self.ranks)]
        return [*cluster, *launcher, sys.executable, *self.script, "--json", str(lines)]


FLAT = ["--ranks-per-node", "1"]
WITH_FAULT_TOLERANCE = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]
WITH_RESPAWN = [*WITH_FAULT_TOLERANCE, "--prtemca", "state_base_recoverable", "1"]
SPARES = ["bench/survive.py", "--heal", "spare", "--kills", "4"]
RESPAWN = ["bench/survive.py", "--heal", "respawn", "--kills", "20"]
CHURN = ["bench/survive.py", "--heal", "respawn", "--kills", "17", "--every", "3.5"]  # a minute
BACKGROUND = ["bench/survive.py", "--heal", "background", "--kills"]
BESIDE_OTHERS = ["--program", "optimizer", "--baseline", "torchft,restart"]
FAILURES_EVERY = {10: 4, 30: 2, 60: 1}  # seconds, and the number of failures
NODE = ["--what", "node", "--ranks-per-node", "4", "--kills", "1"]
ON_HOSTS = [*WITH_FAULT_TOLERANCE, "--mca", "btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma"]
"""docs/install.md explains the flags."""
GROUPS = ["bench/groups.py", "--ranks-per-node", "4"]
SLOW = ["--generators", "random,static,smart,smart-flat,punctual", "--warmup", "32", "--iterations", "80"]
EQUAL_AND_SLOW = [part for slowdown in ("none", "0:2", "0:10", "0:100") for part in ("--slowdown", slowdown)]
GOSSIP = ["bench/gossip.py", "--methods", "all"]
OVERLAP_MODELS = ("mlp", "cnn", "transformer")
OVERLAP_RANKS = (2, 4)
FULL = ["bench/latency.py", "--policy", "full"]
LINKS = {
    "": [],
    "-1gbit": ["--rate", "1gbit"],
    "-100mbit": ["--rate", "100mbit"],
    "-slow-host": ["--rate", "100mbit", "--rate", "node2:10mbit"],
}
"""The names of measurements on two hosts."""
ALIKE = ("", "-1gbit", "-100mbit")
HOSTS_GOSSIP = ["bench/gossip.py", "--compute-ms", "100", "--methods", "all"]
HOSTS_GROUPS = ["bench/groups.py", "--compute-ms", "100", "--model-bytes", "1000000", "--generators", "static,smart"]
HOSTS_SKEW = ["bench/skew.py", "--bytes", "8,32768,262144"]
HOSTS_HOP = ["bench/hop.py", "--slowdown", "none", "--compute-ms", "100", "--mode", "standard,backup:1"]
SERVER = ["bench/server.py", "--servers", "node", "--compute-ms", "100"]
SERVER_MODELS = "bsp,asp,ssp:3,dssp:3:15,elastic:15"
MEASUREMENTS = {
    "skew-8": Measurement(8, ["bench/skew.py"]),  # what `make demo` runs
    "skew-32": Measurement(32, ["bench/skew.py"]),
    "skew-32-mixed": Measurement(32, ["bench/skew.py", "--ranks-per-node", "16"]),
    "skew-32-flat": Measurement(32, ["bench/skew.py", *FLAT]),
    "latency-2": Measurement(2, FULL),
    "latency-8": Measurement(8, FULL),
    "latency-32": Measurement(32, FULL),
    "latency-8-flat": Measurement(8, [*FULL, *FLAT]),
    "direct-2": Measurement(2, ["bench/direct.py"]),
    "direct-8": Measurement(8, ["bench/direct.py"]),
    "c-calls-2": Measurement(2, ["bench/c_calls.py"]),
    "baselines": Measurement(None, ["bench/baselines.py"]),
    "survive-8": Measurement(8, ["bench/survive.py"], options=WITH_FAULT_TOLERANCE),
    "survive-8-spares": Measurement(12, SPARES, options=WITH_FAULT_TOLERANCE),
    "survive-8-respawn": Measurement(8, RESPAWN, options=WITH_RESPAWN),
    "survive-8-flat": Measurement(8, ["bench/survive.py", *FLAT], options=WITH_FAULT_TOLERANCE),
    "survive-8-background": Measurement(8, [*BACKGROUND, "20"], options=WITH_RESPAWN),
    "survive-8-churn": Measurement(8, CHURN, options=WITH_RESPAWN),
    **{
        f"survive-every-{every}": Measurement(
            4, [*BACKGROUND, str(kills), "--every", str(every), *BESIDE_OTHERS], options=WITH_RESPAWN
        )
        for every, kills in FAILURES_EVERY.items()
    },
    "survive-hosts": Measurement(8, ["bench/survive.py", "--kills", "4"], ["2x4"], ON_HOSTS),
    "survive-hosts-node": Measurement(8, ["bench/survive.py", *NODE], ["2x4"], ON_HOSTS),
    **{
        f"{bench}-8-{how}": Measurement(8, [f"bench/{bench}.py", "--on-failure", how], options=WITH_FAULT_TOLERANCE)
        for bench in ("skew", "latency")
        for how in ("raise", "continue")
    },
    "idle-8": Measurement(8, ["bench/idle.py"]),
    "idle-8-flat": Measurement(8, ["bench/idle.py", *FLAT]),
    "top-2": Measurement(2, ["bench/top.py"]),
    "advice": Measurement(8, ["bench/advice.py"]),
    "grace": Measurement(8, ["bench/grace.py"]),
    "zipline": Measurement(None, ["bench/zipline.py"]),
    **{
        f"overlap-{model}-{ranks}": Measurement(ranks, ["bench/overlap.py", "--model", model])
        for model in OVERLAP_MODELS
        for ranks in OVERLAP_RANKS
    },
    "groups-16": Measurement(16, [*GROUPS, "--generators", "all"]),
    "groups-16-slow-2": Measurement(16, [*GROUPS, *SLOW, "--slowdown", "3:2"]),
    "groups-16-slow-5": Measurement(16, [*GROUPS, *SLOW, "--slowdown", "3:5"]),
    "gossip-16": Measurement(16, [*GOSSIP, *EQUAL_AND_SLOW]),
    **{f"gossip-{ranks}": Measurement(ranks, GOSSIP) for ranks in (2, 4, 8)},
    "exchange-2": Measurement(2, ["bench/gossip.py", "--micro"]),
    "exchange-8": Measurement(8, ["bench/gossip.py", "--micro"]),
    **{f"hosts-gossip{link}": Measurement(8, HOSTS_GOSSIP, [*rates, "2x4"]) for link, rates in LINKS.items()},
    **{f"hosts-groups{link}": Measurement(8, HOSTS_GROUPS, [*LINKS[link], "2x4"]) for link in ALIKE},
    **{f"hosts-skew{link}": Measurement(8, HOSTS_SKEW, [*LINKS[link], "2x4"]) for link in ALIKE},
    # Every rank is a node, so that activations are messages between all of them.
    **{
        f"hosts-skew-{activation}": Measurement(8, [*HOSTS_SKEW, *FLAT, "--activation", activation], ["2x4"])
        for activation in ("dissemination", "tree")
    },
    "hop-16": Measurement(16, ["bench/hop.py", "--iterations", "500"]),
    "hop-16-slow": Measurement(16, ["bench/hop.py", "--slowdown", "3:4", "--mode", "backup:1,staleness:5,skip:10"]),
    "hosts-hop-ring-based": Measurement(8, [*HOSTS_HOP, "--graph", "ring-based"], ["--rate", "100mbit", "3x3"]),
    "hosts-hop-two-level": Measurement(8, [*HOSTS_HOP, "--graph", "two-level"], ["--rate", "100mbit", "3x3"]),
    "hop-queue": Measurement(2, ["bench/hop.py", "--micro"]),
    "server-8": Measurement(8, [*SERVER, "--sync", f"{SERVER_MODELS},elastic-per-time:15"]),
    "server-8-slow": Measurement(8, [*SERVER, "--speeds", "none", "--slowdown", "3:3"]),
    "server-micro": Measurement(5, ["bench/server.py", "--micro", "--iterations", "20"]),
    "kills": Measurement(None, ["tests/support/killer.py"]),
    "bias-8": Measurement(8, ["bench/gossip.py", "--bias", "--slowdown", "0:10"]),
}


def run(command: Sequence[str]) -> str:
    """Run a command and return its stdout; subprocess.CalledProcessError if it fails."""
    print("$", *command, flush=True)
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


# --- Checks of the sources ------------------------------------------------------------------------------------------


def require_clean(root: Path, version: str, built_from: str) -> None:
    """Raise UncleanError unless `root` is an unchanged checkout, and the installed package was built from its sources.

    `version` and `built_from` are the version and the commit of the installed package.
    """
    commit = commit_of(root)
    if commit is None:
        raise UncleanError(f"results are measured in a git checkout; {root} is not one")
    changed = _git(root, "status", "--porcelain")
    if changed:
        files = ", ".join(line[3:] for line in changed.splitlines()[:5])
        raise UncleanError(f"results are measured in a checkout without changes; commit or remove: {files}")
    if "unknown" in version:
        raise UncleanError(f"results are measured with an installed package; its version is {version}: `make install`")
    same = ["git", "-C", str(root), "diff", "--quiet", built_from, "HEAD", "--", *BUILT_FROM]
    if built_from.endswith("-dirty") or subprocess.run(same, check=False, stderr=subprocess.DEVNULL).returncode:
        raise UncleanError(
            f"the installed package was built from {built_from}, but the sources are at {commit}: `make install`"
        )


def require_named(text: str) -> None:
    """Raise UncleanError if a result does not contain a clean version and commit."""
    for part in UNCLEAN:
        for line in text.splitlines():
            if part in line:
                raise UncleanError(f'expected a clean version and commit, found "{part}" in: {line[:120]}')


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def ages(results: Path, root: Path) -> list[tuple[int, str, str]]:
    """Return each result with the number of commits that changed the measured sources since, oldest result first."""
    found = []
    for path in sorted(results.rglob("*.json*")):
        for commit in sorted(set(re.findall(r'"commit": "([0-9a-f]{7,40})"', path.read_text(encoding="utf-8")))):
            try:
                since = _git(root, "rev-list", "--count", f"{commit}..HEAD", "--", *BUILT_FROM)
            except subprocess.CalledProcessError:
                since = "-1"  # from another repository, or from a deleted branch
            found.append((int(since), commit, str(path.relative_to(results))))
    return sorted(found, reverse=True)


# --- Measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Collected:
    """The results so far. `folder` is outside the checkout, which stays unchanged for the next measurement."""

    folder: Path
    failed: list[str]

    def add(self, name: str, make: Callable[[Path], None]) -> None:
        """Let `make` write files to a folder, and take all of them, or none if it fails or a file is not clean."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            try:
                make(Path(made))
                for path in Path(made).iterdir():
                    require_named(path.read_text(encoding="utf-8"))
            except (subprocess.CalledProcessError, UncleanError) as error:
                self.failed.append(name)
                print(f"{name}: failed, the previous results stay: {error}", file=sys.stderr, flush=True)
                return
            shutil.copytree(made, self.folder, dirs_exist_ok=True)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


@contextlib.contextmanager
def collected(results: Path) -> Iterator[Collected]:
    """Collect results, and copy them to `results` at the end, also after an error."""
    with tempfile.TemporaryDirectory() as folder:
        everything = Collected(Path(folder), [])
        try:
            yield everything
        finally:
            shutil.copytree(folder, results, dirs_exist_ok=True)


def measure(names: Sequence[str]) -> list[str]:
    """Run measurements in sequence; return the names of the failed ones, whose old results stay in docs/results."""

    def make(name: str, folder: Path) -> None:
        printed = run(MEASUREMENTS[name].command(folder / f"{name}.jsonl"))
        (folder / f"{name}.txt").write_text(printed, encoding="utf-8")

    with collected(RESULTS) as everything:
        for name in names:
            everything.add(name, lambda folder, name=name: make(name, folder))
    return everything.failed


# --- CI -------------------------------------------------------------------------------------------------------------


def keep_ci(path: Path, results: Path) -> None:
    """Store the record of a passed CI run: the time of each step, and pytest's counts.

    UncleanError if the run failed, or if its checkout had changes.
    """
    text = path.read_text(encoding="utf-8")
    require_named(text)
    record = json.loads(text)
    if not record["passed"]:
        raise UncleanError(f"{path}: expected the record of a run that passed, but this one did not")
    lines = []
    for step in record["steps"]:
        # After two titles in a row, the counts belong to the second one.
        pairs = zip(step["tests"], [*step["tests"][1:], ""], strict=False)
        shown = [line for line, after in pairs if not (line.startswith("### ") and after.startswith("### "))]
        lines += [f"### {step['title']}", *shown[len(shown) == 2 :]] if shown else []
    (results / "ci.json").write_text(text, encoding="utf-8")
    (results / "test.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
