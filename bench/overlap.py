"""Measure how much of the gradient averaging is hidden behind backward, in training steps with PyTorch.

    mpirun -n 2 python -m pycollectives bench overlap --model mlp

The same network is trained in four ways: on one rank without averaging, with gradients averaged after backward in one
bucket, with gradients averaged in buckets during backward, and with PyTorch's DistributedDataParallel.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import click
import numpy as np
import torch
from mpi4py import MPI

from common.cells import Summary
from common.cli import Common, common_options, launch
from common.output import Column, Domain, Record, Records, Table, origin, progress_bar, version
from common.timing import Procedure, SleepingBarrier, block_sizes, calls_of, measure
from common.training import METHODS, NETWORKS, Workload
from common.workload import sleep

COLUMNS = [
    Column("Method"),
    Column("Avg Step(us)"),
    Column("p50"),
    Column("p99"),
    Column("Exposed(us)"),
    Column("Hidden", 3),
]
HIDES = ("overlap", "ddp")


@click.command(help=__doc__)
@common_options(iterations=64)
@click.option("--model", type=click.Choice(sorted(NETWORKS)), default="mlp", show_default=True)
@click.option(
    "--width",
    type=click.IntRange(min=1),
    help=f"Width of layers.  [default: {', '.join(f'{name} {network.width}' for name, network in NETWORKS.items())}]",
)
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Examples of each rank.")
@click.option(
    "--bucket-bytes",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    help="Bucket size of overlap and ddp.",
)
@click.option("--warmup", type=click.IntRange(min=0), default=4, show_default=True, help="Steps before each block.")
def overlap(common: Common, model: str, width: int | None, batch: int, bucket_bytes: int, warmup: int) -> None:
    comm = MPI.COMM_WORLD
    workload = Workload(model, width or NETWORKS[model].width, batch, common.seed, bucket_bytes)
    if common.list_only:
        print(f"# ranks {comm.size}")
        for name in METHODS:
            print(f"{name} {workload}")
        return
    torch.set_num_threads(1)
    domain = Domain.of(comm, common.ranks_per_node)
    steps_of_blocks = {warmup + counted for counted in block_sizes(common.iterations)}
    expected = {steps: workload.trained(comm.size, steps) for steps in steps_of_blocks} if common.verify else None
    subjects = [method(comm, workload, common.ranks_per_node, expected) for method in METHODS.values()]
    no_delays = np.zeros((calls_of(common.iterations, warmup), comm.size))
    procedure = Procedure(SleepingBarrier(comm), no_delays, sleep, common.iterations, warmup)
    with progress_bar(1, shown=comm.rank == 0) as step:
        step("steps")
        samples = measure(comm, subjects, procedure)
    if comm.rank == 0:
        steps = {name: Summary.of(1e6 * sample.latencies) for name, sample in zip(METHODS, samples, strict=True)}
        setting = {
            "path": domain.path,
            "ranks": comm.size,
            "ranks_per_node": domain.ranks_per_node,
            "cores": os.cpu_count(),
            **asdict(workload),
            **workload.size(),
            "iterations": common.iterations,
            "warmup": warmup,
            "verified": common.verify,
            "torch": torch.__version__,
            **origin(MPI.Get_library_version()),
        }
        with Records(common.json) as records:
            _report(steps, setting, [f"ranks {comm.size}, {domain}, {os.cpu_count()} cores", str(workload)], records)


def _report(steps: dict[str, Summary], setting: Record, notes: list[str], records: Records) -> None:
    table = Table(
        f"pycollectives Overlap with Backward v{version()}",
        [
            *notes,
            f"buckets of {setting['bucket_bytes']} bytes, seed {setting['seed']}",
            f"iterations {setting['iterations']}, weights {'verified' if setting['verified'] else 'not verified'}",
            f"{setting['mpi']}, torch {setting['torch']}, commit {setting['commit']}",
        ],
        COLUMNS,
    )
    print(table.head())
    for name, latency in steps.items():
        exposed = None if name == "alone" else latency.p50 - steps["alone"].p50
        hidden = hidden_share(latency.p50, steps["after"].p50, steps["alone"].p50) if name in HIDES else None
        print(table.row([name, latency.mean, latency.p50, latency.p99, exposed, hidden]), flush=True)
        record = {"method": name, "latency_us": latency.as_json(), "exposed_us": exposed, "hidden": hidden}
        records.write({"bench": "overlap", **setting, **record})


def hidden_share(step: float, after: float, alone: float) -> float | None:
    """Return the hidden share of the time that averaging after backward adds to a step; None if it adds none."""
    return 1 - (step - alone) / (after - alone) if after > alone else None


if __name__ == "__main__":
    launch(overlap)
