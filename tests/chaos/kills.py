"""Kill ranks in many jobs of `bench survive`, and report how soon the survivors continue.

    python tests/chaos/kills.py JOBS SEED JSON    (6 kills in each job, or of 2 nodes)

Jobs differ in the shape, the program, the victims and the kinds of death. In every fourth job a survivor is stopped or
its GIL is held around each death. Run it beside other work for the times on a loaded machine.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "support"), str(TESTS / "launch")]

from killer import WITH_FAULT_TOLERANCE, mpi_has_crashed  # noqa: E402
from launcher import Outcome, environment, launcher, run  # noqa: E402

BENCH = TESTS.parent / "bench" / "survive.py"
RANKS, KILLS = 8, 6
SHAPES = {"board": "all", "flat": "1", "mixed": "3"}
PROGRAMS = [
    *(["--program", "allreduce", "--policy", policy] for policy in ("solo", "majority", "quorum:2", "full")),
    *(["--program", program] for program in ("groups", "gossip", "hop", "server")),
]
VICTIMS = ("rank", "leader", "coordinator")
LIMIT_S = 180.0


def main(jobs: int, seed: int, json_file: str) -> None:
    """Run the jobs; end with status 1 if one was wrong or hung."""
    found: dict[tuple[str, str], list[float]] = {}
    kills = wrong = crashed = 0
    for number in range(seed, seed + jobs):
        source = random.Random(number)
        shape = list(SHAPES)[number % len(SHAPES)]
        disturb = source.choice(["stop", "gil"]) if number % 4 == 3 else "none"
        what = source.choice([*VICTIMS, *(["node"] if shape == "mixed" else [])])
        deaths = RANKS // int(SHAPES[shape]) if what == "node" else KILLS  # of two nodes of three
        options = [*source.choice(PROGRAMS), "--what", what, "--ranks-per-node", SHAPES[shape]]
        options += ["--kills", str(deaths), "--every", "2" if disturb == "gil" else "0.6", "--seed", str(number)]
        options += ["--by", "kill,segv,kill,abort", "--disturb", disturb]
        file = Path(json_file).with_suffix(f".{os.getpid()}")
        command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", str(RANKS), sys.executable, str(BENCH), *options]
        try:
            job = run([*command, "--json", str(file)], limit=LIMIT_S, env=environment())
            check(job)
        except AssertionError as error:  # wrong, or it hung
            if isinstance(error.args[0], Outcome) and mpi_has_crashed(error.args[0]):
                crashed += 1
                continue
            wrong += 1
            print(f"seed {number}: {' '.join(options)}: {error}", flush=True)
            continue
        record = json.loads(file.read_text()) | {"load": round(os.getloadavg()[0], 1)}
        file.unlink()
        with Path(json_file).open("a") as out:
            out.write(json.dumps(record) + "\n")
        kills += deaths
        found.setdefault((shape, disturb), []).extend(record["next_ms"])
    for (shape, disturb), times in sorted(found.items()):
        p50, p99, most = np.percentile(times, [50, 99, 100])
        print(f"{shape:6} disturb {disturb:5} {len(times):5} times: p50 {p50:7.0f} p99 {p99:7.0f} max {most:7.0f} ms")
    print(f"{kills} kills; of {jobs} jobs {wrong} were wrong, and Open MPI crashed in {crashed}")
    sys.exit(wrong > 0)


def check(job: Outcome) -> None:
    """Fail unless the benchmark ended with a correct result."""
    assert "# pycollectives Survival" in job.out, job
    assert "Traceback" not in job.err, job


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
