"""Compare averaging of weights in groups with MPI_Allreduce, with emulated computing (Ripples Figs. 17 and 19).

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
from common.output import Column, Domain, Records, Report, Table, made_with, origin, progress_bar, version
from common.policies import ALLREDUCE, GENERATORS, NCCL, Generator, build_generator, parse_generators
from common.timing import Window
from common.workers import ITEM, compute_option, model_bytes_option, warmup_option
from common.workload import parse_slowdown, seconds_of, show_slowdown

if TYPE_CHECKING:
    from common.arrays import Arrays
    from common.output import Source

COLUMNS = [
    Column("Generator", key="generator"),
    Column("Iterations/s", 3, key="iterations_per_s"),
    Column("Speedup", 3, key="speedup"),
    Column("Model speedup", 3, key="model_speedup"),
    Column("Of model", 3, key="model_fraction"),
    Column("Sync fraction", 3, key="sync_fraction"),
    Column("Avg Sync(us)", key="latency_us.mean"),
    Column("p50", key="latency_us.p50"),
    Column("p99", key="latency_us.p99"),
    Column("Asking(us)", key="asking_us"),
    Column("Conflicts", key="conflicts"),
    Column("Spectral gap", 3, key="spectral_gap"),
]


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
@model_bytes_option("9.23e6", "weights")
@compute_option(200.0)
@click.option(
    "--slowdown",
    callback=parsed(parse_slowdown),
    metavar="RANK:FACTOR",
    default="",
    help="Adds FACTOR iteration times of sleep to each iteration of a rank; several separated by commas.",
)
@warmup_option
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
    window = Window(warmup * compute, (warmup + common.iterations) * compute)
    count = model_bytes // ITEM
    baseline: GroupCell | None = None
    with (
        Records(common.json if comm.rank == 0 else None) as records,
        progress_bar(len(built), shown=comm.rank == 0) as step,
    ):
        report = Report(table, records, source)
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
            report.add(group_record(setting, cell, baseline, models[name]))


def _without_nccl(comm: MPI.Comm, arrays: Arrays) -> str | None:
    """Return why NCCL is not measured with arrays on devices, "" if it is, None on the host; collective."""
    return why_no_nccl(comm, arrays, np.dtype(np.float32)) if isinstance(arrays, DeviceArrays) else None


def _synchronous(name: str, comm: MPI.Comm, count: int, arrays: Arrays) -> Averaging:
    if not isinstance(arrays, DeviceArrays):
        return AllreduceAveraging(comm, count)
    return NcclAveraging(comm, count, arrays) if name == NCCL else StagedAveraging(comm, count, arrays)


def _models(built: dict[str, Generator | None], setting: Setting, slowdown: dict[int, float]) -> dict[str, float]:
    return {name: modelled_speedup(generator, setting, slowdown) for name, generator in built.items()}


def _table(setting: Setting, source: Source, notes: list[str]) -> Table:
    return Table(
        f"pycollectives Averaging in Groups v{version()}",
        [
            f"ranks {setting.ranks}, {setting.domain}",
            *setting.place.notes(),
            *notes,
            f"model {setting.bytes} bytes, dtype float32, compute {setting.compute * 1e3:g} ms",
            f"slowdown {setting.slowdown}, ideally {setting.ideal_iterations_per_s:.3f} iterations/s",
            f"iterations {setting.iterations}, warm-up {setting.warmup}",
            f"seed {setting.seed}, {setting.verified()}",
            made_with(source),
        ],
        COLUMNS,
        first_width=20,
    )


if __name__ == "__main__":
    launch(groups)
