"""The record of every step of a rank, as JSON lines, and the progress display."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from .files import dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from rich.progress import TaskID
    from typing_extensions import Self

    from .replica import Step


class Clock:
    """A clock for the seconds of training, earlier runs included."""

    def __init__(self) -> None:
        self.start(0.0)

    def start(self, before: float) -> None:
        """Start the clock at `before`, the seconds that earlier runs took."""
        self._begin = time.perf_counter() - before

    def __call__(self) -> float:
        return time.perf_counter() - self._begin


class Metrics:
    """A file with a JSON object per step, whose keys are the fields of `Step`, and `elapsed_s`.

    A loss that is not finite is null. A run that continues from a checkpoint deletes steps after the checkpoint.
    """

    def __init__(self, path: Path, first: int, clock: Callable[[], float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._file.truncate(_size_before(path, first))
        self._clock = clock

    def __call__(self, step: Step) -> None:
        line = {**asdict(step), "elapsed_s": self._clock()}
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in line.items()}
        print(dumps(rounded), file=self._file)

    def flush(self) -> None:
        """Write the buffered steps, for runs that continue from a later checkpoint."""
        self._file.flush()

    def close(self) -> None:
        """Write the buffered steps, and close the file."""
        self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, without an incomplete last line."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def _size_before(path: Path, first: int) -> int:
    """Return the size in bytes of the complete lines before step `first`."""
    size = 0
    with path.open("rb") as file, contextlib.suppress(ValueError):  # of a damaged line
        for line in file:
            if not line.endswith(b"\n") or json.loads(line)["number"] >= first:
                break
            size += len(line)
    return size


class Progress:
    """A progress bar on a terminal, or ten lines per run elsewhere. Loss and figures are means over the last steps."""

    SMOOTHING = 0.9

    def __init__(self, title: str, first: int, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._console = Console(stderr=True)
        self._first, self._steps, self._begin = first, steps, time.perf_counter()
        self._done = first
        self._means: dict[str, float] = {}
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, TextColumn("{task.fields[figures]}"), console=self._console)
            self._task = self._bar.add_task(title, total=steps, completed=first, figures="")
            self._bar.start()

    def __call__(self, step: Step) -> None:
        for key in ("loss", "active", "late"):
            value = float(getattr(step, key))
            before = self._means.get(key, value)
            self._means[key] = self.SMOOTHING * before + (1 - self.SMOOTHING) * value
        done, before = step.number + 1, self._done
        self._done = done
        tenth = max(1, self._steps // 10)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, figures=self._figures(done))
        elif done == self._steps or done // tenth > before // tenth:  # a method may have skipped the tenth itself
            self._console.print(f"step {done} of {self._steps}: {self._figures(done)}", highlight=False)

    def _figures(self, done: int) -> str:
        rate = (done - self._first) / (time.perf_counter() - self._begin)
        return (
            f"loss {self._means['loss']:.4g}  {rate:.3g} steps/s  "
            f"{self._means['active']:.1f} active  {100 * self._means['late']:.0f} % late"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
