"""The scores of rank 0's replica and of the mean model at the ends of epochs, over all runs of a training job.

    FOLDER/00000120.npz      the replica after 120 steps, to be scored; end.npz: the replica at the end of training
    FOLDER/00000120.mean.npz the mean model
    FOLDER/points.json       the scores so far

Models are scored after all steps, because scoring would delay steps.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .archive import pack, read, unpack
from .files import dumps, replace
from .snapshots import END, Snapshots, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .datasets.base import Examples
    from .loop import Training
    from .metrics import Clock
    from .models.base import Model, Score
    from .replica import Step

MEAN = ".mean"
"""The end of the name of a mean model."""


@dataclass(frozen=True)
class Point:
    """A model at the end of an epoch, scored on the validation set."""

    epoch: float  # a fraction at the end of a training, or where a method skipped the step that ends the epoch
    elapsed_s: float  # of training until then, earlier runs included
    loss: float
    accuracy: float | None  # None: the model is not a classifier


class Curve:
    """Replicas of a training job and their scores, in `folder`. None means a temporary folder, until `close`."""

    def __init__(self, folder: Path | None, model: Model, steps_per_epoch: int, clock: Clock) -> None:
        self._snapshots = Snapshots(folder, steps_per_epoch)
        self._model, self._steps_per_epoch, self._clock = model, steps_per_epoch, clock
        self._file = self._snapshots.folder / "points.json"
        self._scores = _points_in(self._file)

    def go_on(self, training: Training) -> None:
        """Drop the points after the next step, which a killed run may have kept after its last checkpoint."""
        newest = END if training.position == training.steps else name_of(training.position)
        self._scores = {name: point for name, point in self._scores.items() if name <= newest}
        self._write()
        self._snapshots.go_on(training.position, newest)

    def __call__(self, step: Step) -> None:
        """Keep the replica if an epoch has ended since the previous step."""
        number = step.number + 1
        if self._snapshots.ends_epoch(number):
            self._keep(name_of(number), number, self._clock(), pack(self._model))

    def flush(self) -> None:
        """Force the kept replicas to the disk, for runs that continue from a later checkpoint."""
        self._snapshots.flush()

    def keep_mean(self, name: str, steps: int, elapsed_s: float, arrays: Mapping[str, Any]) -> None:
        """Keep the mean model after `steps` steps, unless an earlier run has kept it."""
        self._keep_new(f"{name}{MEAN}", steps, elapsed_s, arrays)

    def end(self, steps: int, elapsed_s: float) -> None:
        """Keep the replica at the end of training, unless an earlier run has kept one."""
        self._keep_new(END, steps, elapsed_s, pack(self._model))
        self.flush()

    def score(self, examples: tuple[Examples, ...], is_stopped: Callable[[], bool]) -> bool:
        """Score the kept models one by one; return whether all are scored."""
        for name in self._snapshots.names():
            if is_stopped():
                return False
            path = self._snapshots.path(name)
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
        """The points of the replica, in the order of training."""
        return tuple(self._scores[name] for name in sorted(self._scores) if not name.endswith(MEAN))

    @property
    def mean_points(self) -> tuple[Point, ...]:
        """The points of the mean model, in the order of training; empty if no mean model was kept before the end."""
        names = [name for name in sorted(self._scores) if name.endswith(MEAN)]
        return tuple(self._scores[name] for name in [*names, END]) if names and END in self._scores else ()

    def close(self) -> None:
        self._snapshots.close()

    def _keep_new(self, name: str, steps: int, elapsed_s: float, arrays: Mapping[str, Any]) -> None:
        if name not in {*self._scores, *self._snapshots.names()}:
            self._keep(name, steps, elapsed_s, arrays)

    def _keep(self, name: str, steps: int, elapsed_s: float, arrays: Mapping[str, Any]) -> None:
        when = np.array([steps / self._steps_per_epoch, elapsed_s])
        self._snapshots.keep(name, {"when": when, **arrays})

    def _write(self) -> None:
        scores = {name: asdict(point) for name, point in self._scores.items()}
        replace(self._file, dumps(scores, indent=1) + "\n")


def _points_in(path: Path) -> dict[str, Point]:
    try:
        points = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    for one in points.values():
        one["loss"] = math.nan if one["loss"] is None else one["loss"]
    return {name: Point(**one) for name, one in points.items()}
