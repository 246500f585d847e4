"""Print how many requests per second the group generators serve, without communication.

python tools/group_generator.py [WORKERS ...]
"""

from __future__ import annotations

import sys
import time

import mpi4py

mpi4py.rc.initialize = False  # nothing here communicates

from pycollectives.groups import (  # noqa: E402
    PunctualGroups,
    RandomGroups,
    SmartGroups,
    node_of_each,
)

GENERATORS = (
    RandomGroups(),
    RandomGroups(group_buffer=False),
    SmartGroups(inter_intra=False),
    SmartGroups(),
    PunctualGroups(),
)
REQUESTS = 500_000


def main() -> None:
    """Run the command line."""
    for workers in map(int, sys.argv[1:] or ["64"]):
        for generator in GENERATORS:
            machine = generator.machine(node_of_each(workers, 4))
            start = time.perf_counter()
            machine.run_closed_loop(REQUESTS)
            rate = REQUESTS / (time.perf_counter() - start)
            print(f"{workers:5} workers {rate / 1e6:7.2f} million requests/s  {generator}")


if __name__ == "__main__":
    main()
