"""Start jobs in which ranks die at random moments, and check that the survivors continue without a wrong value.

    python tests/chaos/run.py JOBS SEED    (also `make chaos RUNS=100 SEED=1`)

Each job draws a program of tests/launch/programs, the ranks, nodes, victims, moments and kinds of their deaths. A job
that fails is printed with its command.

- Victims: some of the ranks, or all ranks of a node, which stands for a host. They die one after the other, within the
  recovery from another death, or at once.
- Moments (`moments.py`): while a collective is made, in a step, while it is flushed and left, or while the communicator
  is closed. In the other programs they die at any time of their steps.
- Kinds: SIGKILL, SIGSEGV, SIGABRT, and "memory": under RLIMIT_AS, the rank allocates until an allocation fails, and
  aborts.
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
    "moments.py": [
        [program, moment]
        for program in ("allreduce", "groups", "gossip", "hop", "server")
        for moment in ("creation", "step", "end", "close")
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
            crashed += check(job, command, victims)
        except AssertionError as error:  # wrong, or it hung
            wrong += 1
            words = " ".join(f"{name}={value}" for name, value in options.items())
            print(f"seed {number}: {words} {' '.join(map(str, command))}: {error}", flush=True)
    print(f"{jobs} jobs from seed {seed}: {wrong} wrong, {crashed} in which Open MPI crashed")
    sys.exit(wrong > 0)


def draw(source: random.Random) -> tuple[list[object], dict[str, str], set[int]]:
    """Return the arguments of `mpirun`, the environment, and the victims."""
    program = source.choice([*PROGRAMS, "moments.py", "moments.py"])
    ranks = source.choice([2, 3, 4, 5, 8])
    victims = source.sample(range(ranks), source.randint(1, ranks - 1))
    apart = source.choice(["0.5", "0.1", "0.1", "0.02"] if program == "continues.py" else ["0.5", "0.1", "0.02"])
    arguments = source.choice(PROGRAMS[program])
    ranks_per_node = source.choice(["all", "1", "2", "3"])
    if program == "moments.py":
        apart = source.choice(["0", "0.02"] if "close" in arguments else ["0", "0.02", "0.1"])
    if ranks_per_node in "23" and ranks > int(ranks_per_node) and source.random() < 0.3:
        first = source.randrange(0, ranks, int(ranks_per_node))
        victims = [*range(first, min(first + int(ranks_per_node), ranks))]
    options = {
        "PYC_RANKS_PER_NODE": ranks_per_node,
        "DEATH_BY": source.choice(["SIGKILL", "SIGKILL", "SIGSEGV", "SIGABRT", "memory"]),
        "PYTHONHASHSEED": "0",
    }
    return [ranks, program, *arguments, apart, STEPS, source.randrange(1000), *victims], options, set(victims)


def check(job: Outcome, command: list[object], victims: set[int]) -> bool:
    """Return whether Open MPI crashed on a survivor, which excuses that rank. Fail if the job did not continue."""
    crashed = mpi_has_crashed(job)
    ranks = range(command[0])
    ended = {rank for rank in ranks if job.said(rank)[-1:] == ["end"]}
    expected = {*ranks} - victims
    if "close" in command:  # a victim may be done before, and no rank prints the members
        ended -= victims
    assert "Traceback" not in job.err, job
    assert ended == expected or (crashed and ended < expected), job
    members = {line for rank in ended for line in job.said(rank) if line.startswith("members:")}
    right = set() if "close" in command else {f"members: {' '.join(map(str, sorted(expected)))}"}
    assert members == right or (crashed and len(members) <= 1), job
    return crashed


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
