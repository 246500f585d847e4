"""The mean of all ranks' models at the ends of epochs, on which papers on decentralized methods measure convergence.

During training each rank keeps its own part. Ranks average the parts after all steps, outside the measured time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .archive import pack, read
from .arrays import to_host
from .reductions import check_alive, gathered, reduced
from .snapshots import Snapshots, name_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from .curve import Curve
    from .loop import Training
    from .metrics import Clock
    from .models.base import Model
    from .replica import Step


Part = tuple["NDArray[np.float32]", float]


class Parts:
    """One rank's parts of the mean models.

    A part is from the step in which this rank reached the end of an epoch or, if it took no step then, from an earlier
    step. A mean model has the time of its last part. If `folder` is None, the folder is temporary, until `close`.
    """

    def __init__(self, folder: Path | None, model: Model, steps_per_epoch: int, clock: Clock) -> None:
        self._snapshots = Snapshots(folder, steps_per_epoch)
        self._model, self._clock = model, clock
        self._part: Callable[[Any], Part | None] = lambda weights: None

    def go_on(self, training: Training, part: Callable[[Any], Part | None]) -> None:
        """Keep only the parts before the next step. `part` is the method's `Synchronizer.part`."""
        self._snapshots.go_on(training.position, name_of(training.position))
        self._part = part

    def __call__(self, step: Step) -> None:
        """Keep a part if an epoch has ended since the previous step."""
        if not self._snapshots.ends_epoch(step.number + 1):
            return
        if (part := self._part(self._model.weights)) is not None:
            elapsed_s = self._clock()
            weights, share = part
            arrays = {**pack(self._model), "weights": to_host(weights), "when": np.array([share, elapsed_s])}
            self._snapshots.keep(name_of(self._snapshots.end_of_epoch), arrays)

    def flush(self) -> None:
        """Force the parts to the disk."""
        self._snapshots.flush()

    def average(self, comm: MPI.Comm, curve: Curve | None, steps: int) -> None:
        """Add the mean model of each epoch before `steps` to rank 0's curve; collective, after all steps are taken.

        At the end of training, each replica equals the mean model, which the curve already has.
        """
        own = self._snapshots.names()
        names = sorted({name for names in gathered(comm, own) for name in names if name < name_of(steps)})
        for name in names:
            newest = max((one for one in own if one <= name), default=None)
            part = {} if newest is None else read(self._snapshots.path(newest))
            mean, elapsed_s = self._mean(comm, part)
            if curve is not None:
                curve.keep_mean(name, int(name), elapsed_s, mean)
        check_alive(comm)

    def forget(self) -> None:
        """Delete the files, after all ranks have returned from `average`."""
        self._snapshots.remove()

    def _mean(self, comm: MPI.Comm, part: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], float]:
        """Return the mean of the ranks' parts, weighted by their shares, and the time of the last part; collective.

        Integers, such as step counts, become the largest value of all ranks. Arrays of other types are this rank's.
        """
        share, elapsed_s = part.pop("when").tolist() if part else (0.0, 0.0)
        elapsed_s, total = reduced(comm, elapsed_s, MPI.MAX), reduced(comm, share)
        mean = {}
        for key, array in sorted((part or pack(self._model)).items()):
            if array.dtype.kind == "f":
                sums = array.astype(np.float64) * share
                comm.Allreduce(MPI.IN_PLACE, sums, MPI.SUM)
                mean[key] = (sums / total).astype(array.dtype)
            elif array.dtype.kind in "iu":
                mean[key] = array.copy() if share else np.zeros_like(array)
                comm.Allreduce(MPI.IN_PLACE, mean[key], MPI.MAX)
            else:
                mean[key] = array
            check_alive(comm)
        return mean, elapsed_s

    def close(self) -> None:
        self._snapshots.close()
