"""JSON lines: one object per cell, written as soon as the cell is measured, read by plot.py."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

Record = dict[str, Any]


class Records:
    """Writes to `path`, replacing what was there; to nowhere if `path` is None."""

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
    """All objects of all files, in order; ValueError names the line that is not one."""
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
