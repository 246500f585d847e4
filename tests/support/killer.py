"""Kill a rank of a job at some moment, and collect the errors of the other ranks.

python tests/support/killer.py [--kills N] [--at-once N] [--json FILE]
    prints a table of the times until they knew who died, and writes the error of each
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher import Outcome, mpirun

from pycollectives.diagnostics.provenance import commit_of

__all__ = [
    "PHASES",
    "SHAPES",
    "SIGNALS",
    "TOLD_WITHIN_S",
    "WITH_FAULT_TOLERANCE",
    "WITH_RESPAWN",
    "Kill",
    "Told",
    "check_shrunk",
    "check_told",
    "mpi_has_crashed",
]

# Without the parameter, about one job in fifteen does not end: docs/install.md, "Ranks that may die".
WITH_FAULT_TOLERANCE = ("--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1")
WITH_RESPAWN = (*WITH_FAULT_TOLERANCE, "--prtemca", "state_base_recoverable", "1")
"""Lets new processes die as well."""

SHAPES = {"flat": "1", "mixed": "2", "board": "all"}
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
PHASES = (
    *(
        "solo",
        "majority",
        "quorum",
        "full",
        "long solo",
        "long quorum",
        "long full",
        "joining",
        "asleep",
        "idle",
        "flush",
    ),
    *("groups", "pairwise", "neighbors", "preduce", "compare", "create", "communicator", "closing"),
)
RANKS = 4

EXIT_TIMEOUT_S = 10.0
OUTLIVES_S = 8.0
"""How much later than its limits a process or the launcher may end on a busy machine."""

CRASH = "*** Process received signal ***"


def mpi_has_crashed(job: Outcome) -> bool:
    """Return whether Open MPI 5.0 itself has crashed, as it may if a rank dies while a communicator is created."""
    return CRASH in job.err and any(call in job.err for call in ("PMPI_Comm_dup", "ompi_comm_revoke_local"))


TOLD_WITHIN_S = 10.0
"""Seconds from the death, if a few jobs share the cores; docs/faults.md has the times of a single job."""


def check_told(job: Outcome, victim: int, ranks: int = RANKS) -> None:
    """Fail unless each of the other ranks soon learned which rank died, and completed its program."""
    for rank in set(range(ranks)) - {victim}:
        seconds, text, *_, end = job.said(rank)
        assert float(seconds.removesuffix(" s")) < TOLD_WITHIN_S, job
        assert f"rank {victim} died" in text, job
        assert end == "end", job
    assert job.said(victim) == [], job
    assert "MPI_ABORT" not in job.err, job


def check_shrunk(job: Outcome, victims: tuple[int, ...], ranks: int) -> None:
    """Fail unless the other ranks completed the program shrinks.py.

    If Open MPI itself has crashed on more ranks, these are dead as well.
    """
    left = [rank for rank in range(ranks) if rank not in victims]
    if mpi_has_crashed(job):
        left = [rank for rank in left if "end" in job.said(rank)]
    for rank in left:
        assert job.said(rank)[-2:] == [f"members: {' '.join(map(str, left))}", "end"], job
    for rank in victims:
        assert job.said(rank) == [], job
    assert "Traceback" not in job.err, job
    assert "at the end" not in job.err, job


@dataclass(frozen=True)
class Told:
    """The error of a survivor; `after_s` counts from the death, or from the call that raised the error."""

    error: str | None
    ranks: list[int] | None = None
    after_s: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class Kill:
    """One job of `RANKS` ranks, of which one dies."""

    phase: str
    shape: str
    seed: int

    @property
    def victim(self) -> int:
        """The rank that dies."""
        return random.Random(f"{self}").randrange(RANKS)

    def run(self, folder: Path) -> dict[int, Told]:
        """Run it; return each survivor's error. Fail if a rank does not reach its last line, or lives on after it."""
        how = SIGNALS[self.seed % len(SIGNALS)]
        job = mpirun(
            *(RANKS, "killed_in_phase.py", self.phase, self.victim, int(how), self.seed),
            limit=60,
            options=WITH_FAULT_TOLERANCE,
            DEATH=str(folder / f"{self.phase}-{self.shape}-{self.seed}"),
            PYTHONPATH=str(Path(__file__).parent),
            PYC_RANKS_PER_NODE=SHAPES[self.shape],
            PYC_EXIT_TIMEOUT=str(EXIT_TIMEOUT_S),
        )
        ended, told = time.monotonic(), {}
        crashes = job.err.count(CRASH) - (how is signal.SIGSEGV)  # the victim's is printed too
        for rank in set(range(RANKS)) - {self.victim}:
            said = job.said(rank)
            if not said and self.phase == "communicator" and crashes > 0 and mpi_has_crashed(job):
                crashes -= 1  # each accounts for one rank
                continue
            assert [line.split()[0] for line in said[1:]] == ["end"], f"rank {rank} of {self}: {job}"
            outlived = ended - float(said[1].split()[1])
            most = 2 * EXIT_TIMEOUT_S + OUTLIVES_S  # to close the communicator, and then in MPI_Finalize
            assert outlived < most, f"rank {rank} of {self} ended {outlived:.1f} s later: {job}"
            told[rank] = Told(**json.loads(said[0]))
        return told


def outcome(kill: Kill, folder: Path) -> tuple[Kill, list[Told] | str]:
    """Return the errors of the survivors, or the failure of the job."""
    try:
        return kill, list(kill.run(folder).values())
    except (AssertionError, ValueError) as error:
        return kill, str(error)


def row(name: str, kills: list[tuple[Kill, list[Told] | str]]) -> str:
    """Return a line of the table."""
    told = [(kill, each) for kill, all_told in kills if isinstance(all_told, list) for each in all_told]
    right = sum(each.error == "RankFailedError" and each.ranks == [kill.victim] for kill, each in told)
    seconds = sorted(each.after_s for _, each in told) or [0.0]
    p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    hung = sum(isinstance(all_told, str) for _, all_told in kills)
    times = "".join(f"{value:10.2f}" for value in (statistics.median(seconds), p99, seconds[-1]))
    return f"{name:14}{len(kills):7}{len(told):11}{right:12}{hung:8}{times}"


def machine() -> str:
    """Name this machine as all results do."""
    sys.path.append(str(Path(__file__).parents[2] / "bench"))
    from common import output

    return output.machine()


def main() -> None:
    """Kill ranks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    together = len(PHASES) * len(SHAPES)
    helped = f"a multiple of {together} has all phases and shapes equally"
    parser.add_argument("--kills", type=int, default=7 * together, help=helped)
    parser.add_argument("--at-once", type=int, default=6, help="jobs side by side, which load the machine")
    parser.add_argument("--json", type=Path, help="write JSON lines here")
    arguments = parser.parse_args()
    every = ((phase, shape, seed) for seed in itertools.count() for phase in PHASES for shape in SHAPES)
    kills = [Kill(*each) for each in itertools.islice(every, arguments.kills)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.at_once) as jobs:
        outcomes = list(jobs.map(lambda kill: outcome(kill, Path(folder)), kills))
    commit = commit_of(Path(__file__).parents[2])
    if arguments.json:
        lines = (
            {**asdict(kill), "victim": kill.victim, "told": told if isinstance(told, str) else [*map(asdict, told)]}
            for kill, told in outcomes
        )
        arguments.json.write_text("".join(json.dumps({**line, "commit": commit}) + "\n" for line in lines))
    print("# Kills")
    print(f"# {machine()}; commit {commit}")
    print(
        f"# {len(kills)} kills in jobs of {RANKS} ranks, {arguments.at_once} at once on {os.cpu_count()} cores,", end=""
    )
    print(f" load {os.getloadavg()[1]:.0f}; signals {', '.join(each.name for each in SIGNALS)}")
    print("# seconds from the death, or from the call in which a survivor was told, if that began later")
    print(f"{'# phase':14}{'kills':>7}{'survivors':>11}{'told whom':>12}{'failed':>8}{'p50':>10}{'p99':>10}{'max':>10}")
    for phase in PHASES:
        print(row(phase, [each for each in outcomes if each[0].phase == phase]))
    print(row("all", outcomes))
    for kill, text in outcomes:
        if isinstance(text, str):
            print(f"# {kill}, victim {kill.victim}: {text}")
    for kill, told in outcomes:
        for each in told if isinstance(told, list) else ():
            if each.ranks != [kill.victim] or each.after_s > 2:
                print(f"# {kill}, victim {kill.victim}: {each}")


if __name__ == "__main__":
    main()
