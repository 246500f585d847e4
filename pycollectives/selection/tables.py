"""The selection table of this process.

The process uses the first of these tables that exists:

1. the file that `PYC_SELECTION` names, which must be readable and well-formed;
2. the user's file, `$XDG_CONFIG_HOME/pycollectives/selection.json` (in `~/.config` by default), which `python -m
   pycollectives tune` writes. If the file is malformed, or was made on a different machine, the process warns and
   ignores it;
3. the built-in table.

The built-in table was measured with ranks that share cores. If every rank has a core and the communicator knows the
costs of its messages, ranks use a cost model instead (`selection.model`).

A file is read once per process. Ranks compare their tables when they make a collective.
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

_instead: SelectionTable | None = None
"""The table set by `using`."""


@functools.cache
def built_in() -> SelectionTable:
    """Return the table that comes with the package."""
    text = resources.files(__package__).joinpath("measured.json").read_text()
    return SelectionTable.from_json(json.loads(text))


def for_costs(costs: Costs | None) -> SelectionTable | CostModel:
    """Return the table or cost model for a communicator's message costs. `costs` is None if they are unknown."""
    table = in_use()
    return table if costs is None or table is not built_in() else CostModel(costs, table)


def is_tuned() -> bool:
    """Return True if this process uses a table other than the built-in one, or cannot read its table."""
    try:
        return in_use() is not built_in()
    except ValueError:  # raised again, on all ranks, when a collective needs the table
        return True


def in_use() -> SelectionTable:
    """Return this process's table; raise ValueError if the file that `PYC_SELECTION` names cannot be used."""
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
        made = "does not state where it was made" if table.machine is None else f"was made on {table.machine}"
        _warn(
            f"selection table {users}: {made}; this machine is {Machine.here()}: the built-in table is used. "
            "`mpirun -n P python -m pycollectives tune` measures this machine"
        )
    return built_in()


def _warn(text: str) -> None:
    """Warn on the program's first rank only, because all ranks read the same file."""
    from ..support.native import MPI

    if not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.rank == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def read(path: Path) -> SelectionTable:
    """Read a table. If it is malformed, raise a ValueError that names the file and the key.

    A missing file raises an error that is both a ValueError and a FileNotFoundError.
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
    """The file of a table does not exist."""


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a table's document atomically: a concurrent reader gets either the old or the new document.

    If the document is malformed, raise a ValueError and write nothing.
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
    """Return JSON in which objects and lists are on one line if they contain no other objects or lists."""

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
    """Use another table during the block, in all threads of this process; all ranks must do the same."""
    global _instead
    before, _instead = _instead, table
    try:
        yield
    finally:
        _instead = before


def describe(table: SelectionTable | CostModel) -> str:
    """Return the text that ranks compare: "built-in", the digest of another table, or a model's costs."""
    if isinstance(table, CostModel):
        return f"cost model, {table.costs!r}"
    return "built-in" if table.digest == built_in().digest else table.digest
