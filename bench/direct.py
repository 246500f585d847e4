"""Measure the gain of direct rounds: balanced latency of `Full()` with little data, against rounds on the board.

    mpirun -n 2 python -m pycollectives bench direct --json direct.jsonl

The ranks share one node. `Solo()` with `max_staleness=0` waits for every rank in every round like `Full()`, but has no
direct rounds. Both are measured in rotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch, parse_sizes, parsed
from common.output import Column, Records, Table, origin, version
from common.summary import Summary
from common.timing import Procedure, TightBarrier, calls_of, measure
from common.warmup import MOST

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: dict[str, dict[str, Any]] = {"direct": {"policy": pc.Full()}, "board": {"policy": pc.Solo(), "max_staleness": 0}}


class Rounds:
    """A subject: blocking calls of one partial allreduce. The communicator lives for one block."""

    def __init__(self, comm: MPI.Comm, size: int, arguments: dict[str, Any]) -> None:
        self._comm = comm
        self._x = np.ones(size // 4, np.float32)
        self._arguments = arguments
        self._communicator: pc.Communicator | None = None

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        del block, calls
        self._communicator = pc.Communicator(self._comm)
        ar = self._communicator.partial_allreduce(self._x, op=MPI.SUM, missed="latest", **self._arguments)
        return lambda: ar.allreduce(self._x)

    def prepare(self, call: int) -> None:
        """Do nothing, since every call has the same data."""

    def check(self, call: int, answer: Any) -> None:
        result, info = answer
        if len(info.contributors) != self._comm.size or (result != self._comm.size).any():
            raise AssertionError(f"call {call}: {info}, {result}")

    def close(self) -> None:
        if self._communicator is not None:
            self._communicator.close()


@click.command(help=__doc__)
@common_options(iterations=2000)
@click.option("--bytes", "sizes", callback=parsed(parse_sizes), metavar="LIST", default="8,64", show_default=True)
def direct(common: Common, sizes: list[int]) -> None:
    comm = MPI.COMM_WORLD
    if common.list_only:
        if comm.rank == 0:
            print("\n".join(WAYS))
        return
    no_delays = np.zeros((calls_of(common.iterations, MOST), comm.size))
    procedure = Procedure(TightBarrier(comm), no_delays, _no_delay, common.iterations, MOST, until_stationary=True)
    table = Table(
        f"pycollectives Direct Rounds and the Same on the Board v{version()}",
        [f"ranks {comm.size}, one node, float32, iterations {common.iterations}", "medians of the ranks' calls"],
        [Column("Size"), Column("Direct(us)"), Column("Board(us)"), Column("Speedup")],
    )
    if comm.rank == 0:
        print(table.head(), flush=True)
    with Records(common.json if comm.rank == 0 else None) as records:
        for size in sizes:
            subjects = [Rounds(comm, size, arguments) for arguments in WAYS.values()]
            samples = measure(comm, subjects, procedure)
            if comm.rank != 0:
                continue
            medians = [Summary.of(each.latencies * 1e6).p50 for each in samples]
            speedup = medians[1] / medians[0]
            print(table.row([size, *medians, speedup]), flush=True)
            found = {f"{way}_us": round(median, 3) for way, median in zip(WAYS, medians, strict=True)}
            source = origin(MPI.Get_library_version())
            records.write(
                {"bench": "direct", "ranks": comm.size, "bytes": size, **found, "speedup": round(speedup, 4), **source}
            )


def _no_delay(seconds: float) -> None:
    del seconds


if __name__ == "__main__":
    launch(direct)
