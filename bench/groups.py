"""Compare averaging of weights in groups with MPI_Allreduce, with emulated computing (Ripples Figs. 15, 17 and 19).

    mpirun -n 16 python -m pycollectives bench groups --ranks-per-node 4 --slowdown 3:5

Until a common deadline, each worker repeatedly computes (emulated by sleeping) and averages its weights. With --device
cuda, weights are on devices. They are compared with MPI_Allreduce staged through the host, and with NCCL if each rank
has a device. `python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import numpy as np
from mpi4py import MPI

from common.averaging import AllreduceAveraging, Averaging, GroupAveraging, run_workers, verify
from common.cells import GroupCell, Setting, group_record, modelled_speedup
from common.cli import Common, common_options, device_option, launch, parsed
from common.device_arrays import DeviceArrays, arrays_on
from common.device_subjects import NcclAveraging, StagedAveraging, why_no_nccl
from common.output import Column, Domain, Record, Records, Table, origin, progress_bar, version
from common.policies import ALLREDUCE, GENERATORS, NCCL, Generator, build_generator, parse_generators
from common.timing import Window
from common.workload import parse_slowdown, seconds_of, show_slowdown

if TYPE_CHECKING:
    from common.arrays import Arrays

ITEM = 4  # bytes of a float32

COLUMNS = [
    Column("Generator"),
    Column("Iterations/s", 3),
    Column("Speedup", 3),
    Column("Model speedup", 3),
    Column("Of model", 3),
    Column("Sync fraction", 3),
    Column("Avg Sync(us)"),
    Column("p50"),
    Column("p99"),
    Column("Asking(us)"),
    Column("Conflicts"),
    Column("Spectral gap", 3),
]


def _model_bytes(text: str) -> int:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not (ITEM <= size < 1e15 and size % ITEM == 0):
        raise ValueError(f"expected a positive multiple of {ITEM}, got {text!r}")
    return int(size)


@click.command(help=__doc__)
@common_options(iterations=64)
@device_option
@click.option(
    "--generators",
    callback=parsed(parse_generators),
    metavar="LIST|all",
    default="allreduce,random,static,smart,punctual",
    show_default=True,
    help=f"Some of {', '.join(GENERATORS)}, separated by commas. The allreduce is always measured.",
)
@click.option(
    "--model-bytes",
    callback=parsed(_model_bytes),
    metavar="BYTES",
    default="9.23e6",
    show_default=True,
    help="Size of the float32 weights.",
)
@click.option(
    "--compute-ms",
    type=click.FloatRange(min=0, min_open=True),
    default=200.0,
    show_default=True,
    help="Emulated computing time of an iteration.",
)
@click.option(
    "--slowdown",
    callback=parsed(parse_slowdown),
    metavar="RANK:FACTOR",
    default="",
    help="Adds FACTOR iteration times of sleep to each iteration of a rank; several separated by commas.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Warm-up time, in iterations of a worker that never waits. It is not counted.",
)
def groups(
    common: Common,
    device: str,
    generators: list[str],
    model_bytes: int,
    compute_ms: float,
    slowdown: dict[int, float],
    warmup: int,
) -> None:
    comm = MPI.COMM_WORLD
    if slowdown and max(slowdown) >= comm.size:
        raise click.UsageError(f"--slowdown: expected a rank below {comm.size}, got {max(slowdown)}")
    if common.list_only:
        print(f"# ranks {comm.size}")
        for name in generators:
            print(f"{name} {model_bytes} bytes, slowdown {show_slowdown(slowdown)}")
        return
    arrays = arrays_on(device, comm)
    without_nccl = _without_nccl(comm, arrays)
    domain = Domain.of(comm, common.ranks_per_node)
    names = [ALLREDUCE, NCCL, *generators[1:]] if without_nccl == "" else generators
    built = {
        name: build_generator(name, ranks=comm.size, ranks_per_node=domain.ranks_per_node, seed=common.seed)
        for name in names
    }
    compute = compute_ms * 1e-3
    setting = Setting(
        ranks=comm.size,
        domain=domain,
        bytes=model_bytes,
        compute=compute,
        slowdown=show_slowdown(slowdown),
        sleeps=seconds_of(slowdown, ranks=comm.size, compute=compute),
        iterations=common.iterations,
        warmup=warmup,
        seed=common.seed,
        verify=common.verify,
        place=arrays.place,
    )
    models = _models(built, setting, slowdown) if comm.rank == 0 else {}
    source = origin(MPI.Get_library_version())
    table = _table(setting, source, [f"NCCL is left out: {without_nccl}"] if without_nccl else [])
    print(table.head(), flush=True)
    window = Window(warmup * compute, (warmup + common.iterations) * compute)
    count = model_bytes // ITEM
    baseline: GroupCell | None = None
    with (
        Records(common.json if comm.rank == 0 else None) as records,
        progress_bar(len(built), shown=comm.rank == 0) as step,
    ):
        for name, generator in built.items():
            step(name)
            averaging = (
                _synchronous(name, comm, count, arrays)
                if generator is None
                else GroupAveraging(comm, count, generator, common.ranks_per_node, arrays)
            )
            run = run_workers(comm, averaging, compute=setting.sleeps[comm.rank], window=window)
            if common.verify:
                verify(comm, name, run, anybody_slow=any(slowdown.values()))
            if run is None:
                continue
            cell = GroupCell.of(name, run, window)
            baseline = baseline or cell  # the allreduce is the first
            record = group_record(setting, cell, baseline, models[name])
            print(table.row(_row(record)), flush=True)
            records.write({**record, **source})


def _without_nccl(comm: MPI.Comm, arrays: Arrays) -> str | None:
    """Return why NCCL is not measured with arrays on devices, "" if it is, None on the host; collective."""
    return why_no_nccl(comm, arrays, np.dtype(np.float32)) if isinstance(arrays, DeviceArrays) else None


def _synchronous(name: str, comm: MPI.Comm, count: int, arrays: Arrays) -> Averaging:
    if not isinstance(arrays, DeviceArrays):
        return AllreduceAveraging(comm, count)
    return NcclAveraging(comm, count, arrays) if name == NCCL else StagedAveraging(comm, count, arrays)


def _models(built: dict[str, Generator | None], setting: Setting, slowdown: dict[int, float]) -> dict[str, float]:
    return {name: modelled_speedup(generator, setting, slowdown) for name, generator in built.items()}


def _table(setting: Setting, source: dict[str, str | None], notes: list[str]) -> Table:
    return Table(
        f"pycollectives Averaging in Groups v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}",
            *setting.place.notes(),
            *notes,
            f"model {setting.bytes} bytes, dtype float32, compute {setting.compute * 1e3:g} ms",
            f"slowdown {setting.slowdown}, ideally {setting.ideal_iterations_per_s:.3f} iterations/s",
            f"iterations {setting.iterations}, warm-up {setting.warmup}",
            f"seed {setting.seed}, results {'verified' if setting.verify else 'not verified'}",
            f"{source['mpi']}, commit {source['commit']}",
        ],
        COLUMNS,
        first_width=20,
    )


def _row(record: Record) -> list[float | str | None]:
    latency = record["latency_us"]
    return [
        record["generator"],
        record["iterations_per_s"],
        record["speedup"],
        record["model_speedup"],
        record["model_fraction"],
        record["sync_fraction"],
        latency["mean"],
        latency["p50"],
        latency["p99"],
        record["asking_us"],
        record["conflicts"],
        record["spectral_gap"],
    ]


if __name__ == "__main__":
    launch(groups)
