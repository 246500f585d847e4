"""A job of bench/baselines.py: the balanced allreduce of one subject. Writes a JSON line as soon as a size is done.

MPI's own allreduce needs only NumPy and mpi4py, and runs in environments without this library.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mpi4py
import numpy as np

from common.summary import Summary
from common.timing import Procedure, TightBarrier, calls_of, measure
from common.warmup import MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

DTYPE = np.dtype(np.float32)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    if options.subject == "mpi":
        mpi4py.rc.thread_level = "single"  # MPICH's fastest level, which a program without threads may request
    from mpi4py import MPI  # starts MPI

    comm = MPI.COMM_WORLD
    if comm.size != options.ranks:
        sys.exit(f"error: expected {options.ranks} ranks, found {comm.size}: the launcher is not of this MPI")
    shared: dict[str, Any] = {"library": MPI.Get_library_version()}
    if options.subject == "full":
        from common.output import Domain

        shared["ranks_per_node"] = Domain.of(comm, options.ranks_per_node).ranks_per_node
    with options.output.open("w", encoding="utf-8") if comm.rank == 0 else open("/dev/null", "w") as lines:
        for size in options.bytes:
            cell = _measure(comm, options, size)
            lines.write(json.dumps({"bytes": size, **cell, **shared}) + "\n")
            lines.flush()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", choices=["mpi", "full"], required=True)
    parser.add_argument("--ranks", type=int, required=True, help="the expected number of ranks")
    parser.add_argument("--bytes", type=lambda text: [int(size) for size in text.split(",")], required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--ranks-per-node", type=int)
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args(arguments)


def _measure(comm: MPI.Comm, options: argparse.Namespace, size: int) -> dict[str, Any]:
    """Measure one size; collective. Empty on all ranks but 0."""
    no_delays = np.zeros((calls_of(options.iterations, MOST), comm.size))
    procedure = Procedure(TightBarrier(comm), no_delays, _no_delay, options.iterations, MOST, until_stationary=True)
    (samples,) = measure(comm, [_subject(comm, options, size)], procedure)
    if comm.rank != 0:
        return {}
    return {
        "latency_us": Summary.of(samples.latencies * 1e6).as_json(),
        "warmup": max(samples.warmups),
        "stationary": samples.stationary,
    }


def _subject(comm: MPI.Comm, options: argparse.Namespace, size: int) -> Any:
    from common.mpi_subjects import MpiAllreduce, Operand

    operand = Operand(DTYPE, size, options.seed, options.verify)
    if options.subject == "mpi":
        return MpiAllreduce(comm, operand)
    from common.policies import PolicyName
    from common.subjects import PartialAllreduce

    policy = PolicyName("full")
    shape = options.ranks_per_node
    return PartialAllreduce(comm, operand, policy, late="accumulate", algorithm="auto", ranks_per_node=shape)


def _no_delay(seconds: float) -> None:
    del seconds


if __name__ == "__main__":
    main()
