"""Measure a call from C against the same call from Python: `contribute` and `test` of 8 bytes on a board.

    mpirun -n 2 python -m pycollectives bench c_calls --json c-calls.jsonl

All ranks share one node, and call at their own pace. Before each call, a rank works on some memory, which evicts the
library from the caches. Both languages alternate in blocks. The benchmark needs a C compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch, parsed
from common.errors import RunError
from common.output import Column, Records, Table, origin, version
from common.summary import Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = 10
WARMUP = 200
NAME = "c_calls_loops"
MISSED = ("sum", "latest")


def loops_in_c(folder: Path) -> Any:
    """Compile and import the loops of c_calls.c."""
    module = folder / f"{NAME}.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    includes = ["-I", sysconfig.get_path("include"), "-I", pc.get_include()]
    source = Path(__file__).with_name("c_calls.c")
    try:
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", *includes, str(source), "-o", str(module)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RunError(f"expected a C compiler (CC, or cc), got: {error}") from None
    spec = importlib.util.spec_from_file_location(NAME, module)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def calls_in_python(
    loops: Any, ar: pc.PartialAllreduce | None, memory: NDArray[np.uint8], times: NDArray[np.int64]
) -> None:
    """Make the same calls as `calls` of c_calls.c; write the nanoseconds of each to `times`."""
    x = np.ones(1)
    clock, work = time.perf_counter_ns, loops.work
    for i in range(len(times)):
        work(memory)
        begin = clock()
        if ar is not None:
            ar.contribute(x).test()
        times[i] = clock() - begin


def sizes(text: str) -> list[int]:
    """Return the bytes of the work before a call; 0 for none."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"expected numbers >= 0 separated by commas, got {text!r}")
    return [int(part) for part in parts]


@click.command("c_calls", help=__doc__)
@common_options(iterations=2000)
@click.option("--work-bytes", callback=parsed(sizes), metavar="LIST", default="0,1048576", show_default=True)
def c_calls(common: Common, work_bytes: list[int]) -> None:
    comm = MPI.COMM_WORLD
    if common.list_only:
        if comm.rank == 0:
            print("\n".join(f"missed={missed} work {size}" for missed in MISSED for size in work_bytes))
        return
    with tempfile.TemporaryDirectory() as folder:
        loops = loops_in_c(Path(folder))
    table = Table(
        f"pycollectives Calls from C and from Python v{version()}",
        [
            f"ranks {comm.size}, one node, contribute and test of 8 bytes, default policy, calls {common.iterations}",
            "medians of the ranks' calls; work: bytes of memory that a rank reads and writes before each call",
        ],
        [Column("Missed"), Column("Work"), Column("Python(us)"), Column("C(us)"), Column("C/Python")],
    )
    if comm.rank == 0:
        print(table.head(), flush=True)
    with Records(common.json if comm.rank == 0 else None) as records, pc.Communicator(comm) as communicator:
        for missed in MISSED:
            for size in work_bytes:
                samples = comm.gather(measured(communicator, loops, missed, size, common.iterations))
                if samples is None:
                    continue
                medians = [Summary.of(np.concatenate(each) / 1e3).p50 for each in zip(*samples, strict=True)]
                ratio = medians[1] / medians[0]
                print(table.row([missed, size, *medians, ratio]), flush=True)
                found = {"python_us": round(medians[0], 4), "c_us": round(medians[1], 4), "ratio": round(ratio, 4)}
                records.write(
                    {
                        "bench": "c_calls",
                        "ranks": comm.size,
                        "bytes": 8,
                        "missed": missed,
                        "work_bytes": size,
                        **found,
                        **origin(MPI.Get_library_version()),
                    }
                )


def measured(
    comm: pc.Communicator, loops: Any, missed: str, work_bytes: int, iterations: int
) -> list[NDArray[np.float64]]:
    """Return the nanoseconds of this rank's calls from Python and from C, without the clock's; collective."""
    memory = np.zeros(work_bytes, np.uint8)
    in_turn = [
        lambda ar, times: calls_in_python(loops, ar, memory, times),
        lambda ar, times: loops.calls(ar, memory, times),
    ]
    samples: list[list[NDArray[np.int64]]] = [[], []]
    for block in range(2 * BLOCKS):
        times = np.zeros(WARMUP + iterations // BLOCKS, np.int64)
        with comm.partial_allreduce(np.zeros(1), op=MPI.SUM, missed=missed) as ar:
            in_turn[block % 2](ar, times)
            ar.flush()
            if ar.statistics().contributions != len(times):
                raise RunError(f"expected {len(times)} contributions, got {ar.statistics().contributions}")
        samples[block % 2].append(times[WARMUP:])
    clocks = []
    for run in in_turn:
        times = np.zeros(WARMUP + iterations // BLOCKS, np.int64)
        run(None, times)
        clocks.append(np.median(times[WARMUP:]))
    return [np.concatenate(each) - clock for each, clock in zip(samples, clocks, strict=True)]


if __name__ == "__main__":
    launch(c_calls)
