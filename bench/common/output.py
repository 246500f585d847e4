"""The output of a benchmark: tables, JSON lines, a progress bar, and the origin of the figures."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

import pycollectives as pc
from pycollectives.diagnostics.provenance import commit_of
from pycollectives.support.machine import cpu_model

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from .cli import Sweep
    from .policies import PolicyName

Record = dict[str, Any]
Source = dict[str, str | None]
"""The result of `origin`."""


class Records:
    """Writes records to `path` and replaces the file; writes nothing if `path` is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, record: Record) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Return the records of all files in order; a ValueError names the line that is no record."""
    records: list[Record] = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(record, dict) or "bench" not in record:
                raise ValueError(f"{path}:{number}: not a benchmark's record (no key 'bench')")
            records.append(record)
    return records


FIRST_WIDTH = 10
WIDTH = 18


@dataclass(frozen=True)
class Column:
    name: str
    precision: int = 2
    least_width: int = WIDTH
    key: str = ""
    """Of its value in a record; "latency_us.p50" is one of an object."""

    @property
    def width(self) -> int:
        return max(self.least_width, len(self.name) + 2)

    def cell(self, value: float | str | None) -> str:
        if value is None:
            return "-"
        return str(value) if isinstance(value, int | str) else f"{value:.{self.precision}f}"


@dataclass(frozen=True)
class Table:
    title: str
    notes: Sequence[str]
    columns: Sequence[Column]
    first_width: int = FIRST_WIDTH

    def head(self) -> str:
        return "\n".join(f"# {line}" for line in [self.title, machine(), *self.notes]) + "\n" + self.names()

    def names(self) -> str:
        """Return the line with the names of the columns."""
        first, *rest = self.columns
        return f"# {first.name}".ljust(self.first_width) + "".join(column.name.rjust(column.width) for column in rest)

    def row_of(self, record: Record) -> str:
        """Return the row of a record, by the keys of the columns."""
        return self.row([functools.reduce(operator.getitem, column.key.split("."), record) for column in self.columns])

    def row(self, values: Sequence[float | str | None]) -> str:
        """Return a row as text; None prints as '-'."""
        (first, value), *rest = zip(self.columns, values, strict=True)
        return first.cell(value).ljust(self.first_width) + "".join(
            column.cell(value).rjust(column.width) for column, value in rest
        )


@dataclass(frozen=True)
class Report:
    """Prints a table's head, then a row of each record, and writes the records with their origin."""

    table: Table
    records: Records
    source: Source

    def __post_init__(self) -> None:
        print(self.table.head(), flush=True)

    def add(self, record: Record) -> None:
        print(self.table.row_of(record), flush=True)
        self.records.write({**record, **self.source})


def print_plan(sweep: Sweep, policies: list[PolicyName], ranks: int) -> None:
    """Print the cells without measuring them (--list)."""
    print(f"# ranks {ranks}")
    for policy in policies:
        for size in sweep.bytes:
            print(f"{policy} {size}")


def policy_table(
    what: str,
    policy: PolicyName,
    sweep: Sweep,
    *,
    ranks: int,
    domain: Domain,
    notes: list[str],
    origin: Record,
    columns: list[Column],
) -> Table:
    """Return the table of one policy; `what` is the measured quantity in its title."""
    return Table(
        f"pycollectives {policy.title} Allreduce {what} v{version()}",
        [
            f"ranks {ranks}, {domain}",
            *notes,
            f"dtype {sweep.dtype}, late {sweep.late}, algorithm {sweep.algorithm}, "
            + (f"activation {sweep.activation}, " if sweep.activation != "auto" else "")
            + (f"on_failure={sweep.on_failure}, " if sweep.on_failure != "raise" else "")
            + f"seed {sweep.seed}",
            f"iterations {sweep.iterations}, results {'verified' if sweep.verify else 'not verified'}",
            made_with(origin),
        ],
        columns,
    )


Step = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[Step]:
    """Yield a function to call with the name of each step as it begins.

    The bar is drawn only in these calls, without a thread, so that it never runs in a timed region.
    """
    if not (shown and sys.stderr.isatty()):  # under a launcher stderr is no terminal, and the rows show the progress
        if shown and total > 1:
            print(f"{total} measurements; the result of each is shown as soon as it is there", file=sys.stderr)
        yield lambda name: None
        return
    with Progress(console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=total)
        begun = 0

        def step(name: str) -> None:
            nonlocal begun
            progress.update(task, description=name, completed=begun, refresh=True)
            begun += 1

        yield step


BENCH = Path(__file__).resolve().parent.parent


def mpi_name(library_version: str) -> str:
    """Return the first words of MPI_Get_library_version: 'Open MPI v5.0.11', 'MPICH Version: 5.0.0'."""
    lines = library_version.strip("\0 \n").splitlines()
    return " ".join(lines[0].split(",")[0].split()) if lines else "unknown"


def machine() -> str:
    parts = [cpu_model(), f"{os.cpu_count()} cores", platform.system()]
    if cluster := os.environ.get("CLUSTER"):  # of tools/hosts
        parts.append(cluster)
    return ", ".join(parts)


def origin(library_version: str) -> Source:
    """Return the keys of every record."""
    return {"commit": commit_of(BENCH.parent), "mpi": mpi_name(library_version), "machine": machine()}


@dataclass(frozen=True)
class Domain:
    """The ranks that share a board; with one rank per node, all data goes over MPI."""

    ranks_per_node: int

    @property
    def path(self) -> str:
        return "board" if self.ranks_per_node > 1 else "flat"

    def __str__(self) -> str:
        return f"path {self.path}, ranks per node {self.ranks_per_node}"

    @classmethod
    def of(cls, comm: MPI.Comm, ranks_per_node: int | None) -> Domain:
        """Return the domain that a Communicator forms from `ranks_per_node` on this machine; collective."""
        try:
            communicator = pc.Communicator(comm, ranks_per_node=ranks_per_node)
        except ValueError as error:  # raised on every rank, since the argument is the same
            raise RunError(str(error)) from error
        with communicator:
            return cls(int(getattr(communicator, "ranks_per_node", None) or 1))


def made_with(source: Source) -> str:
    """Return the last line of a table's head."""
    return f"{source['mpi']}, commit {source['commit']}"


def verified(what: str, is_verified: bool) -> str:
    return f"{what} {'verified' if is_verified else 'not verified'}"


def version() -> str:
    """Return the version without its last number: 0.1 for 0.1.2."""
    return ".".join(pc.__version__.split(".")[:2])
