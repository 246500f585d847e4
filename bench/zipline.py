"""Measure time and quality of a barrier search, per algorithm (ElasticBSP, Tables 3 and 4, Fig. 10). No mpirun.

    python -m pycollectives bench zipline --workers 10,100,1000 --lookahead 15,150

Figures are means over generated data sets (--sets). Each iteration calls every algorithm once on the same rows.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import click

import pycollectives as pc
from common.cli import Alone, alone_options, parsed
from common.output import Column, Record, Records, Table, origin, progress_bar, version
from pycollectives.zipline import Barrier, Incremental, generate, zipline_linear

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

EXACT = ("zipline_linear", "incremental", "zipline_opt_bs", "zipline_opt", "zipline", "naive")
HEURISTIC = ("grid_scan", "full_grid_scan")
DEFAULT = ",".join(name for name in (*EXACT, *HEURISTIC) if name != "naive")
MOST_SETS = 1_000_000  # for `naive`, which examines all of them

COLUMNS = [
    Column("Algorithm"),
    Column("Workers"),
    Column("Lookahead"),
    Column("d(ms)", 1),
    Column("t_sync(ms)", 1),
    Column("Optimum"),
    Column("Min Time(us)", 1),
    Column("p50", 1),
    Column("Times linear", 3),
]


# --- Options ---


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ValueError(f"expected positive numbers separated by commas, got {text!r}")
    return [int(number) for number in numbers]


def _algorithms(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in (*EXACT, *HEURISTIC):
            raise ValueError(f"expected some of {', '.join((*EXACT, *HEURISTIC))}; got {name!r}")
    return list(dict.fromkeys(names))


# --- The timed algorithms ---


class Subject(Protocol):
    def measure(self) -> float:
        """Return the CPU seconds of one call, which other load does not affect. No call waits."""

    def barrier(self) -> Barrier:
        """Return the barrier that it finds for the rows of the cell."""

    def check(self) -> None:
        """Raise ClickException if the last timed call returned a wrong result."""


class FullSolution:
    def __init__(self, name: str, rows: Rows) -> None:
        self._name = name
        self._rows = rows
        self._solve: Callable[[Rows], Barrier] = getattr(pc.zipline, name)
        self._found: Barrier | None = None

    def measure(self) -> float:
        begin = time.thread_time()
        self._found = self._solve(self._rows)
        return time.thread_time() - begin

    def barrier(self) -> Barrier:
        assert self._found is not None
        return self._found

    def check(self) -> None:
        best = zipline_linear(self._rows)
        _check_points(self._name, self._rows, self.barrier())
        if (self.barrier() != best) if self._name in EXACT else (self.barrier().d < best.d):
            raise click.ClickException(f"{self._name} returned {self.barrier()[:2]}, zipline_linear {best[:2]}")


class Update:
    """The update of one row after a worker has pushed; the row is restored afterwards, untimed."""

    def __init__(self, rows: Rows, others: Rows) -> None:
        self._rows = rows
        self._others = others
        self._solver = Incremental(rows)
        self._worker = -1
        self._found: Barrier | None = None

    def measure(self) -> float:
        self._worker = (self._worker + 1) % len(self._rows)
        before = (self._worker + 1) % len(self._rows)
        self._solver.update(before, self._rows[before])  # a preceding push, which changes nothing
        row = self._others[self._worker]
        begin = time.thread_time()
        self._found = self._solver.update(self._worker, row)
        seconds = time.thread_time() - begin
        self._solver.update(self._worker, self._rows[self._worker])
        return seconds

    def barrier(self) -> Barrier:
        return self._solver.barrier

    def check(self) -> None:
        changed = self._rows.copy()
        changed[self._worker] = self._others[self._worker]
        for rows, found in ((changed, self._found), (self._rows, self.barrier())):
            if found != zipline_linear(rows):
                raise click.ClickException(f"incremental returned {found}, zipline_linear {zipline_linear(rows)}")


def _check_points(name: str, rows: Rows, barrier: Barrier) -> None:
    chosen = [int(row[iteration]) for row, iteration in zip(rows, barrier.iterations, strict=True)]
    if (max(chosen), max(chosen) - min(chosen)) != barrier[:2]:
        raise click.ClickException(f"{name} returned {barrier[:2]} and points from {min(chosen)} to {max(chosen)}")


# --- Cells ---


@dataclass
class Cell:
    """One algorithm on data sets of one size."""

    name: str
    workers: int
    lookahead: int
    found: list[Barrier] = field(default_factory=list)  # of each data set
    optima: int = 0  # data sets whose optimum was found
    seconds: list[list[float]] = field(default_factory=list)  # of each data set, of each call

    @property
    def p50_us(self) -> float:
        return 1e6 * statistics.fmean(map(statistics.median, self.seconds))

    @property
    def min_us(self) -> float:
        return 1e6 * statistics.fmean(map(min, self.seconds))


def _measure(cells: list[Cell], common: Alone, seed: int, step: Callable[[str], None]) -> None:
    """Measure all algorithms on one data set."""
    size = (cells[0].workers, cells[0].lookahead)
    rows, others = generate(*size, seed), generate(*size, seed + 1)
    subjects: list[Subject] = [
        Update(rows, others) if cell.name == "incremental" else FullSolution(cell.name, rows) for cell in cells
    ]
    for cell in cells:
        cell.seconds.append([])
    for iteration in range(common.iterations):
        step(f"{size[0]} workers, lookahead {size[1]}, seed {seed}, iteration {iteration + 1}")
        for cell, subject in zip(cells, subjects, strict=True):
            cell.seconds[-1].append(subject.measure())
            if common.verify:
                subject.check()
    least = zipline_linear(rows).d
    for cell, subject in zip(cells, subjects, strict=True):
        cell.found.append(subject.barrier())
        cell.optima += subject.barrier().d == least


def _report(cells: list[Cell], sets: int, common: Alone, table: Table, records: Records, source: Record) -> None:
    linear = next((cell.p50_us for cell in cells if cell.name == "zipline_linear"), None)
    for cell in cells:
        d, t_sync = (statistics.fmean(getattr(barrier, name) for barrier in cell.found) for name in ("d", "t_sync"))
        times_linear = linear and cell.p50_us / linear
        row = [cell.name, cell.workers, cell.lookahead, d, t_sync, f"{cell.optima}/{sets}", cell.min_us, cell.p50_us]
        print(table.row([*row, times_linear]), flush=True)
        records.write(
            {
                "bench": "zipline",
                "algorithm": cell.name,
                "workers": cell.workers,
                "lookahead": cell.lookahead,
                "sets": sets,
                "d": d,
                "t_sync": t_sync,
                "optima": cell.optima,
                "time_us": {"min": round(cell.min_us, 3), "p50": round(cell.p50_us, 3)},
                "times_linear": times_linear and round(times_linear, 4),
                "iterations": common.iterations,
                "seed": common.seed,
                "verified": common.verify,
                **source,
            }
        )


@click.command(help=__doc__)
@alone_options(iterations=3)
@click.option("--workers", callback=parsed(_numbers), metavar="LIST", default="10,100,1000", show_default=True)
@click.option(
    "--lookahead",
    callback=parsed(_numbers),
    metavar="LIST",
    default="15,150",
    show_default=True,
    help="Points of each worker.",
)
@click.option(
    "--algorithms",
    callback=parsed(_algorithms),
    metavar="LIST",
    default=DEFAULT,
    show_default=True,
    help="Algorithms of pycollectives.zipline. naive is for the smallest rows; incremental updates one row.",
)
@click.option(
    "--sets",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Data sets of each size, with seeds from --seed on. The paper has ten.",
)
def zipline(common: Alone, workers: list[int], lookahead: list[int], algorithms: list[str], sets: int) -> None:
    sizes = [(of, ahead) for ahead in lookahead for of in workers]
    for of, ahead in sizes:
        if "naive" in algorithms and ahead**of > MOST_SETS:
            raise click.UsageError(f"naive looks at lookahead^workers sets: {ahead}^{of} are more than {MOST_SETS}")
    if common.list_only:
        for of, ahead in sizes:
            for name in algorithms:
                print(f"{name} {of} {ahead}")
        return
    source = origin("") | {"mpi": None}  # no MPI is involved
    table = Table(
        f"pycollectives ZipLine Barrier Search v{version()}",
        [
            f"intervals 1000 to 1500 ms, means over {sets} data sets, the first with seed {common.seed}",
            f"iterations {common.iterations} of each, results {'verified' if common.verify else 'not verified'}",
            f"{source['machine']}, commit {source['commit']}",
        ],
        COLUMNS,
        first_width=16,
    )
    print(table.head(), flush=True)
    steps = len(sizes) * sets * common.iterations
    with Records(common.json) as records, progress_bar(steps, shown=True) as step:
        for of, ahead in sizes:
            cells = [Cell(name, of, ahead) for name in algorithms]
            for number in range(sets):
                _measure(cells, common, common.seed + number, step)
            _report(cells, sets, common, table, records, source)


if __name__ == "__main__":
    zipline()
