"""Read and write rows of timestamps, in the text format of ElasticBSP's authors.

Each worker has a line, in any order: its number, a colon, and its timestamps, each followed by a comma:

    1:1643595472645,1643595473802,
    0:1643595472648,1643595473795,1643595474942,
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .rows import extension, flattened

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from .typing import Rows, Timestamps

INTEGER = r"[+-]?[0-9]+"
NUMBER = rf"{INTEGER}(?:\.[0-9]*)?(?:[eE]{INTEGER})?"
INTEGERS = re.compile(rf"{INTEGER}(?:,{INTEGER})*")
NUMBERS = re.compile(rf"{NUMBER}(?:,{NUMBER})*")


def write(path: str | os.PathLike[str], rows: Rows) -> None:
    """Write `rows` to the file `path`; `read` returns the same numbers, even for `float64`.

    Raises
    ------
    ValueError, TypeError
        As for `zipline_linear`. The file is not touched.
    """
    points, ends = flattened(rows)
    extension().check(points, ends)
    lines = (
        f"{worker}:" + "".join(f"{time!r}," for time in row.tolist()) + "\n"
        for worker, row in enumerate(np.split(points, ends[:-1]))
    )
    Path(path).write_text("".join(lines), encoding="ascii")


def read(path: str | os.PathLike[str]) -> list[Timestamps]:
    """Return the rows of file `path` in the order of workers: `int64`, or `float64` if a timestamp is not an integer.

    Raises
    ------
    ValueError
        A line is not `worker:timestamp,timestamp,...,`, a worker is missing or has two lines, or `zipline_linear`
        refuses the rows. The text names the file, and the line or the row.
    """
    texts: dict[int, str] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            _take_line(f"{path}:{number}", "".join(line.split()), texts)
    missing = next((worker for worker in range(len(texts)) if worker not in texts), None)
    if missing is not None:
        raise ValueError(f"{path}: expected workers 0 to {len(texts) - 1}, got none with the number {missing}")
    try:
        rows = _numbers([texts[worker] for worker in range(len(texts))])
        extension().check(*flattened(rows))
    except (ValueError, OverflowError) as error:  # OverflowError: too large for int64
        raise ValueError(f"{path}: {error}") from None
    return rows


def _take_line(where: str, line: str, texts: dict[int, str]) -> None:
    """Add the numbers of a line, without spaces, to `texts` under its worker."""
    worker, colon, numbers = line.partition(":")
    numbers = numbers.removesuffix(",")
    if not (colon and worker.isdecimal() and NUMBERS.fullmatch(numbers)):
        shown = line if len(line) <= 40 else f"{line[:40]}..."
        raise ValueError(f"{where}: expected 'worker:timestamp,timestamp,...,', got {shown!r}")
    if int(worker) in texts:
        raise ValueError(f"{where}: expected each worker once, got worker {int(worker)} again")
    texts[int(worker)] = numbers


def _numbers(texts: Sequence[str]) -> list[Timestamps]:
    if all(INTEGERS.fullmatch(text) for text in texts):
        return [np.array([int(number) for number in text.split(",")], np.int64) for text in texts]
    return [np.array([float(number) for number in text.split(",")], np.float64) for text in texts]
