"""Which selection table this process uses.

The first that there is:

1. the file that `PYC_SELECTION` names, as it is: an error if it cannot be read or is malformed;
2. the user's, `$XDG_CONFIG_HOME/pycollectives/selection.json` (default `~/.config`), which `python -m pycollectives
   tune` writes: if it was made on a machine like this one. Otherwise, or if it is malformed, a warning says so;
3. the built-in one.

Instead of the built-in one, which was measured where ranks share cores, ranks that have a core each use a cost model
(`selection.model`), if the communicator knows what its messages cost.

A file is read once per process. Ranks compare what their tables say when they create a collective.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import tempfile
import warnings
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..support.environment import selection_files
from ..support.machine import Machine
from .choice import SelectionTable
from .model import CostModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..support.costs import Costs

__all__ = ["built_in", "describe", "for_costs", "in_use", "is_tuned", "read", "using", "write"]

_instead: SelectionTable | None = None
"""The table of `using`."""


@functools.cache
def built_in() -> SelectionTable:
    """Return the table that comes with the package."""
    text = resources.files(__package__).joinpath("measured.json").read_text()
    return SelectionTable.from_json(json.loads(text))


def for_costs(costs: Costs | None) -> SelectionTable | CostModel:
    """Return what a communicator asks whose messages have these costs; None: they are not known.

    Raises
    ------
    ValueError
        As `in_use`.
    """
    table = in_use()
    return table if costs is None or table is not built_in() else CostModel(costs, table)


def is_tuned() -> bool:
    """Whether this process uses another table than the built-in one, or cannot read the one that it should use."""
    try:
        return in_use() is not built_in()
    except ValueError:  # raised again, and on all ranks, when a collective asks
        return True


def in_use() -> SelectionTable:
    """Return the table that this process uses.

    Raises
    ------
    ValueError
        The file that `PYC_SELECTION` names cannot be read or is malformed.
    """
    return _instead or _first(*selection_files())


@functools.cache
def _first(named: Path | None, users: Path | None) -> SelectionTable:
    if named is not None:
        return read(named)
    if users is not None:
        try:
            table = read(users)
        except FileNotFoundError:
            return built_in()
        except ValueError as error:
            _warn(f"{error}; the built-in table is used")
            return built_in()
        if table.machine == Machine.here():
            return table
        made = "does not say where it was made" if table.machine is None else f"was made on {table.machine}"
        _warn(
            f"selection table {users}: {made}; this machine is {Machine.here()}: the built-in table is used. "
            "`mpirun -n P python -m pycollectives tune` measures this machine"
        )
    return built_in()


def _warn(text: str) -> None:
    """Warn, on the first rank of the program alone: all have the same file."""
    from ..support.native import MPI

    if not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.rank == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def read(path: Path) -> SelectionTable:
    """Read a table.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file; it cannot be read or is malformed. Names the file and the key. The first is the second
        too, so that `except ValueError` catches both.
    """
    name = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # /dev/zero never ends, and a pipe may never begin
            raise ValueError("expected a file")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _NoFileError(f"selection table {name}: {error.strerror}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"selection table {name}: {getattr(error, 'strerror', None) or error}") from None
    return SelectionTable.from_json(document, name)


class _NoFileError(FileNotFoundError, ValueError):
    """A table that is not there."""


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a table's document at once: whoever reads it meanwhile reads the old one or the new one.

    Raises
    ------
    ValueError
        `SelectionTable` could not read it; nothing is written.
    OSError
        It cannot be written.
    """
    SelectionTable.from_json(document, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(_lines(document))
            os.fchmod(file.fileno(), 0o644)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _lines(document: Mapping[str, Any]) -> str:
    """Return JSON with a line for each row: an object or a list that holds neither stands on one line."""

    def text(value: Any, margin: str) -> str:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not any(isinstance(entry, dict | list) for entry in inner):
            return json.dumps(value, ensure_ascii=False)
        deeper = margin + "  "
        if isinstance(value, dict):
            lines = [f"{deeper}{json.dumps(key)}: {text(entry, deeper)}" for key, entry in value.items()]
            return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
        return "[\n" + ",\n".join(deeper + text(entry, deeper) for entry in value) + f"\n{margin}]"

    return text(dict(document), "") + "\n"


@contextlib.contextmanager
def using(table: SelectionTable) -> Iterator[None]:
    """Use a table instead, in all threads of this process; all ranks must do the same."""
    global _instead
    before, _instead = _instead, table
    try:
        yield
    finally:
        _instead = before


def describe(table: SelectionTable | CostModel) -> str:
    """Return what ranks compare: "built-in", the digest of a table that says something else, or a model's costs."""
    if isinstance(table, CostModel):
        return f"cost model, {table.costs!r}"
    return "built-in" if table.digest == built_in().digest else table.digest
