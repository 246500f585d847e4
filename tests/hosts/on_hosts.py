"""Starts jobs from a test on several hosts: namespaces of this machine, which tools/hosts makes for each job anew."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import environment, launcher, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher import Outcome

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "tools" / "hosts"
IS_OPEN_MPI = len(launcher()) > 1
WITHOUT_PUT = ("--mca", "btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma")  # docs/install.md says why

# Every rank runs pytest, and rank 0 is heard. What fails on another rank is printed to stderr by tests/mpi/conftest.py.
RANK_0_IS_HEARD = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec >/dev/null; exec "$@"'


def ranks_of(shape: str) -> int:
    """Return how many ranks there are: of 2x4, two hosts of four, 8."""
    return math.prod(map(int, shape.split("x")))


def on_hosts(shape: str, *command: object, rate: str | None = None, limit: float = 120, **env: str) -> Outcome:
    """Run a command beside hosts of a shape, with links of a rate; its launchers find the hosts. Fails if it hangs."""
    rates = [] if rate is None else ["--rate", rate]
    outcome = run([str(HOSTS), *rates, shape, *map(str, command)], limit=limit, env=environment(**env))
    assert not outcome.hung
    return outcome


def launched(shape: str, *program: object, options: Sequence[str] = (), **how: object) -> Outcome:
    """Run a program of Python on all ranks of the hosts. `options` are the launcher's."""
    return on_hosts(shape, *launcher(), *options, "-n", ranks_of(shape), sys.executable, *program, **how)


def run_mpi_tests(shape: str, *files: str, limit: float = 120, **env: str) -> Outcome:
    """Run files of tests/mpi on all ranks of the hosts."""
    pytest = [sys.executable, "-m", "pytest", "--with-mpi", "-p", "no:cacheprovider", "--color=no"]
    paths = [ROOT / "tests" / "mpi" / file for file in files]
    ranks = str(ranks_of(shape))
    everywhere = ["sh", "-c", RANK_0_IS_HEARD, "rank", *pytest, *paths]
    return on_hosts(shape, *launcher(), "-n", ranks, *everywhere, limit=limit, PYC_TEST_RANKS=ranks, **env)
