"""The output of a command line for wrong arguments: many in one job, because starting a job takes most of the time."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from launcher import PROGRAMS, Outcome, environment, launcher, run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["outcomes_of_wrong_use"]


def outcomes_of_wrong_use(ranks: int, program: str, lists: Sequence[Sequence[str]], **env: str) -> list[Outcome]:
    """Run a script or module with each list of arguments; all ranks must end the same. One rank needs no launcher."""
    prefix = [] if ranks == 1 else [*launcher(), "-n", str(ranks)]
    command = [*prefix, sys.executable, str(PROGRAMS / "wrong_use.py"), str(ranks), program, json.dumps(lists)]
    job = run(command, limit=100, env=environment(**env))
    assert (job.status, job.err) == (0, "")
    found = []
    for wrong, line in zip(lists, job.out.splitlines(), strict=True):
        statuses, err = json.loads(line)
        print(*wrong, err)
        assert len(set(statuses)) == 1
        found.append(Outcome(statuses[0], "", err, 0.0, 100))
    return found
