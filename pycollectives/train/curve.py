"""The scores of rank 0's replica at the ends of epochs, over all runs of a training.

    FOLDER/00000120.npz      the replica after that many steps, to be scored; end.npz: after all have settled
    FOLDER/points.json       the scores so far

Replicas are kept in files, because all of them may not fit into memory. Scoring them at once would delay the steps.
"""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .archive import pack, read, unpack
from .files import dumps, force, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from .datasets.base import Examples
    from .loop import Training
    from .metrics import Clock
    from .models.base import Model, Score
    from .replica import Step

END = "end"
"""The last name of all: digits go before letters."""

UNFINISHED = "unfinished"
"""A file that is being written: goes after the last name, so no run keeps it."""


@dataclass(frozen=True)
class Point:
    """Rank 0's replica at the end of an epoch, scored on the validation set."""

    epoch: float  # a fraction at the end of a training, or where a method skipped the step that ends the epoch
    elapsed_s: float  # of training until then, earlier runs included
    loss: float
    accuracy: float | None  # None: the model is no classifier


class Curve:
    """The replicas of one training and their scores. `folder` None: a temporary one, until `close`."""

    def __init__(self, folder: Path | None, model: Model, steps_per_epoch: int, clock: Clock) -> None:
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory()
            folder = Path(self._temporary.name)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._model, self._steps_per_epoch, self._clock = model, steps_per_epoch, clock
        self._scores = _points_in(self._folder / "points.json")
        self._unforced: list[Path] = []
        self._epochs = 0  # that are over

    def go_on(self, training: Training) -> None:
        """Keep only the points before the next step: a run may have been killed after its checkpoint."""
        self._epochs = training.position // self._steps_per_epoch
        newest = END if training.position == training.steps else _name(training.position)
        self._scores = {name: point for name, point in self._scores.items() if name <= newest}
        self._write()
        for path in self._folder.glob("*.npz"):
            if path.stem > newest:
                path.unlink()
        self._unforced = list(self._folder.glob("*.npz")) if self._temporary is None else []

    def __call__(self, step: Step) -> None:
        """Keep the replica if an epoch has ended since the previous step."""
        number = step.number + 1
        epochs = number // self._steps_per_epoch
        if epochs > self._epochs:
            self._keep(_name(number), number, self._clock())
            self._epochs = epochs

    def flush(self) -> None:
        """Force the kept replicas to the disk: a run that continues from a checkpoint needs those before it."""
        for path in self._unforced:
            force(path)
        force(self._folder)
        self._unforced.clear()

    def end(self, steps: int, elapsed_s: float) -> None:
        """Keep the settled replica, unless an earlier run has kept one."""
        if END not in {*self._scores, *self._waiting()}:
            self._keep(END, steps, elapsed_s)
            self.flush()

    def score(self, examples: tuple[Examples, ...], is_stopped: Callable[[], bool]) -> bool:
        """Score the kept replicas one by one; return whether all are scored."""
        for name in self._waiting():
            if is_stopped():
                return False
            path = self._folder / f"{name}.npz"
            file = read(path)
            epoch, elapsed_s = file["when"].tolist()
            self._scores[name] = Point(epoch, elapsed_s, *self._score(file, examples))
            self._write()
            path.unlink()
        return True

    def _score(self, file: dict[str, Any], examples: tuple[Examples, ...]) -> Score:
        """Return the score of a replica in a file. The model keeps its own weights: survivors of a death need them."""
        own = {name: array.copy() for name, array in pack(self._model).items()}
        try:
            unpack(file, self._model)
            return self._model.evaluate(*examples)
        finally:
            unpack(own, self._model)

    @property
    def points(self) -> tuple[Point, ...]:
        """The scored points, in the order of training."""
        return tuple(self._scores[name] for name in sorted(self._scores))

    def close(self) -> None:
        """Delete the folder if it is a temporary one."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _keep(self, name: str, number: int, elapsed_s: float) -> None:
        new, path = self._folder / f"{UNFINISHED}.npz", self._folder / f"{name}.npz"
        content: dict[str, Any] = {"when": np.array([number / self._steps_per_epoch, elapsed_s]), **pack(self._model)}
        np.savez(new, **content)
        new.replace(path)
        if self._temporary is None:
            self._unforced.append(path)

    def _waiting(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob("*.npz"))

    def _write(self) -> None:
        scores = {name: asdict(point) for name, point in self._scores.items()}
        replace(self._folder / "points.json", dumps(scores, indent=1) + "\n")


def _name(number: int) -> str:
    return f"{number:08d}"


def _points_in(path: Path) -> dict[str, Point]:
    try:
        points = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    for one in points.values():
        one["loss"] = math.nan if one["loss"] is None else one["loss"]
    return {name: Point(**one) for name, one in points.items()}
