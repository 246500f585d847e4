"""Start jobs in which ranks die at random moments, and check that the survivors continue without a wrong value.

    python tests/chaos/run.py JOBS SEED    (also `make chaos JOBS=100 SEED=1`)

Each job draws a program of tests/launch/programs, the ranks, nodes, victims, moments and kinds of their deaths. A job
that fails is printed with its command.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "support"), str(TESTS / "launch")]

from killer import WITH_FAULT_TOLERANCE, mpi_has_crashed  # noqa: E402
from launcher import Outcome, mpirun  # noqa: E402

PROGRAMS = {
    "continues.py": [
        [policy, missed]
        for policy in ("solo", "majority", "quorum", "any-of:2", "full")
        for missed in ("latest", "sum")
    ],
    "reduces.py": [["smart"], ["random:2"], ["punctual"], ["static:2"]],
    "averages.py": [["neighbor_averaging", "ring"], ["push_sum", "one-peer-exponential"], ["push_sum", "star"]],
    "pairs.py": [["ring"], ["bipartite-exponential"]],
    "queues.py": [["0"], ["1"]],
    "hops.py": [["standard"], ["backup:1"], ["staleness:2"], ["notify-ack"], ["skip:10"]],
    "servers.py": [
        [sync, servers]
        for sync in ("asp", "bsp", "ssp:3", "dssp:2:5", "elastic:5")
        for servers in ("1", "2", "node", "all")
    ],
}
"""Programs, and their own arguments."""
LIMIT_S = 120.0
STEPS = 40


def main(jobs: int, seed: int) -> None:
    """Run the jobs; end with status 1 if one was wrong."""
    crashed = wrong = 0
    for number in range(seed, seed + jobs):
        command, options, victims = draw(random.Random(number))
        try:
            with tempfile.TemporaryDirectory() as folder:
                job = mpirun(
                    *command, limit=LIMIT_S, options=WITH_FAULT_TOLERANCE, DEATH=str(Path(folder) / "death"), **options
                )
            crashed += check(job, command[0], victims)
        except AssertionError as error:  # wrong, or it hung
            wrong += 1
            words = " ".join(f"{name}={value}" for name, value in options.items())
            print(f"seed {number}: {words} {' '.join(map(str, command))}: {error}", flush=True)
    print(f"{jobs} jobs from seed {seed}: {wrong} wrong, {crashed} in which Open MPI crashed")
    sys.exit(wrong > 0)


def draw(source: random.Random) -> tuple[list[object], dict[str, str], set[int]]:
    """Return the arguments of `mpirun`, the environment, and the victims."""
    program = source.choice(sorted(PROGRAMS))
    ranks = source.choice([2, 3, 4, 5, 8])
    victims = source.sample(range(ranks), source.randint(1, ranks - 1))
    apart = source.choice(["0.5", "0.1", "0.1", "0.02"] if program == "continues.py" else ["0.5", "0.1", "0.02"])
    arguments = source.choice(PROGRAMS[program])
    options = {
        "PYC_RANKS_PER_NODE": source.choice(["all", "1", "2", "3"]),
        "DEATH_BY": source.choice(["SIGKILL", "SIGKILL", "SIGSEGV", "SIGABRT"]),
        "PYTHONHASHSEED": "0",
    }
    return [ranks, program, *arguments, apart, STEPS, source.randrange(1000), *victims], options, set(victims)


def check(job: Outcome, ranks: int, victims: set[int]) -> bool:
    """Return whether Open MPI crashed on a survivor, which excuses that rank. Fail if the job did not continue."""
    crashed = mpi_has_crashed(job)
    ended = {rank for rank in range(ranks) if job.said(rank)[-1:] == ["end"]}
    expected = set(range(ranks)) - victims
    assert "Traceback" not in job.err, job
    assert ended == expected or (crashed and ended < expected), job
    members = {line for rank in ended for line in job.said(rank) if line.startswith("members:")}
    assert members == {f"members: {' '.join(map(str, sorted(expected)))}"} or (crashed and len(members) <= 1), job
    return crashed


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
