"""Compare the forecasts of `python -m pycollectives advise` with measurements, load by load.

    mpirun -n 8 python -m pycollectives bench advice --loads one-late,cloud

Ranks train under a load with the synchronous method, and record their step times. All methods are forecast from these
times, and then run under the same load. `python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, common_options, launch
from common.output import Column, Domain, Records, Table, origin, version
from pycollectives.simulation.advice import forecasts, rank_correlation
from pycollectives.train import job, metrics
from pycollectives.train.settings import Settings

LOADS = {
    "one-late": "one-late,work_ms=30,skew_ms=45",
    "two-late": "one-late,work_ms=25,skew_ms=60,late=2",
    "rotating": "rotating,work_ms=25,skew_ms=50",
    "shifting": "shifting,work_ms=20,skew_ms=60",
    "linear": "linear,work_ms=25,skew_ms=6",
    "lognormal": "lognormal,work_ms=35,skew_ms=20",
    "cloud": "cloud,work_ms=30,skew_ms=12",
    "one-slow": "one-slow,work_ms=25,factor=3",
    "random-slow": "random-slow,work_ms=25,factor=4",
    "speeds": "speeds,work_ms=25,most=3",
}
"""Loads that no experiment has."""

COLUMNS = [
    Column("Load", least_width=13),
    Column("Method", least_width=26),
    Column("Forecast/s", 1),
    Column("Measured/s", 1),
    Column("Ratio", 3),
]


def methods(ranks: int) -> dict[str, str]:
    """Return the methods of `train` by their names in a forecast."""
    quorums = {f"quorum:{k}": f"eager,policy=quorum:{k}" for k in ((ranks + 1) // 2, (3 * ranks + 3) // 4)}
    return {
        "synchronous": "synchronous",
        "solo": "eager,policy=solo",
        "majority": "eager,policy=majority",
        **quorums,
        "p-reduce smart": "ripples,groups=smart",
        "d-psgd ring": "d-psgd",
        "sgp one-peer-exponential": "sgp",
        "ad-psgd": "ad-psgd",
        "ssp:3": "parameter-server,sync=ssp:3",
        "elastic:15": "parameter-server,sync=elastic:15",
        "asp": "parameter-server,sync=asp",
    }


@click.command(help=__doc__)
@common_options(iterations=66)
@click.option("--loads", default=",".join(LOADS), help="Loads, separated by commas.  [default: all]")
def advice(common: Common, loads: str) -> None:
    comm = MPI.COMM_WORLD
    names = loads.split(",")
    if unknown := set(names) - {*LOADS}:
        raise click.UsageError(f"--loads: expected some of {', '.join(LOADS)}; got {min(unknown)!r}")
    if common.list_only:
        print(f"# ranks {comm.size}")
        for name in names:
            print(f"advice {LOADS[name]}: {', '.join(methods(comm.size))}")
        return
    domain, source = Domain.of(comm, common.ranks_per_node), origin(MPI.Get_library_version())
    title = f"pycollectives Forecasts and Measurements v{version()}"
    about = [
        f"ranks {comm.size}, {domain}",
        f"steps {common.iterations} of all ranks, seed {common.seed}",
        f"{source['mpi']}, commit {source['commit']}",
    ]
    table = Table(title, about, COLUMNS)
    if comm.rank == 0:
        print(table.head())
    with Records(common.json) as records:
        for name in names:
            rows = _measured(comm, common, LOADS[name])
            for method, forecast, rate in rows:
                print(table.row([name, method, forecast, rate, forecast / rate]), flush=True)
                cell = {"bench": "advice", "load": name, "method": method, "forecast_per_s": round(forecast, 3)}
                cell |= {"measured_per_s": round(rate, 3), "path": domain.path, "ranks": comm.size}
                records.write({**cell, "iterations": common.iterations, "seed": common.seed, **source})
            tau = rank_correlation([row[1] for row in rows], [row[2] for row in rows])
            print(f"# {name}: rank correlation of the best five {tau:.2f}", flush=True)


def _measured(comm: MPI.Comm, common: Common, load: str) -> list[tuple[str, float, float]]:
    """Return the forecast and the measured steps per second of all ranks, by method."""
    rates = {}
    with tempfile.TemporaryDirectory() as own:
        folder = Path(comm.bcast(own))
        for name, method in methods(comm.size).items():
            rates[name] = _rate(comm, common, method, load, folder / "run" if name == "synchronous" else None)
        lines = [metrics.read(folder / "run" / f"metrics-rank-{rank:04d}.jsonl") for rank in range(comm.size)]
        work = np.array([[line["compute_s"] for line in of_rank] for of_rank in lines])
        comm.Barrier()  # before rank 0 deletes its folder
    found = {each.method: each.steps_per_s for each in forecasts(work)}
    return [(name, found[name], rate) for name, rate in rates.items()]


def _rate(comm: MPI.Comm, common: Common, method: str, load: str, output: Path | None) -> float:
    examples = 16 * comm.size
    settings = Settings.of(
        {
            "method": method,
            "load": load,
            "batch": examples,
            "data": f"hyperplane,dimensions=256,points={examples * 11},validation=16",
            "model": "hyperplane",
            "optimizer": "sgd,rate=0.001",
            "epochs": common.iterations / 11,
            "by_speed": method != "synchronous",
            "seed": common.seed,
            "output": output,
        }
    )
    with pc.Communicator(comm, ranks_per_node=common.ranks_per_node) as communicator:
        summary = job.run(settings, communicator)
    return summary.steps_per_s * comm.size


if __name__ == "__main__":
    launch(advice)
