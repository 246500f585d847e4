"""Checkpoints: a folder for each, with a file per rank in NumPy's format; `latest` names the newest that is whole.

    CHECKPOINT/latest                  "step-00000120.3"
    CHECKPOINT/step-00000120.3/rank-0003.npz

A rank's file has its weights, the optimizer's and the model's state, and where the rank stands: its next step, which
may be another than its neighbour's. `latest` is replaced after all ranks have written, so a job that is killed on the
way leaves the checkpoint before. Files are not forced to the disk: that is for power failures, and takes seconds.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .loop import Replica, Training

__all__ = ["exists", "load", "save"]


def exists(folder: Path) -> bool:
    """Whether there is one."""
    return (folder / "latest").exists()


def save(folder: Path, comm: MPI.Comm, training: Training, replica: Replica, setting: Mapping[str, Any]) -> None:
    """Write one, and delete the one before; collective, after the replicas have settled.

    Parameters
    ----------
    folder
        On a file system that all ranks share.
    comm
        All ranks.
    training, replica
        What is written.
    setting
        What a run that goes on from here must share.
    """
    newest = comm.allreduce(training.number, MPI.MAX)
    name = f"step-{newest:08d}.{training.settled}"  # never that of the one before
    arrays = {"weights": replica.model.weights}
    arrays |= {f"optimizer.{key}": value for key, value in replica.optimizer.state().items()}
    arrays |= {f"model.{key}": value for key, value in replica.model.state().items()}
    where = {"number": training.number, "settled": training.settled, "setting": dict(setting)}
    _together(comm, lambda: _write(folder / name / f"rank-{comm.rank:04d}.npz", arrays, where))
    if comm.rank == 0:
        before = (folder / "latest").read_text().strip() if exists(folder) else name
        _replace(folder / "latest", name)
        if before != name:
            shutil.rmtree(folder / before, ignore_errors=True)
    comm.Barrier()


def load(folder: Path, comm: MPI.Comm, training: Training, replica: Replica, setting: Mapping[str, Any]) -> None:
    """Take up what `save` wrote; collective.

    Raises
    ------
    ValueError
        It was written by another number of ranks or for another setting; or a file is damaged. On all ranks.
    """
    _together(comm, lambda: _read(folder, comm, training, replica, setting))


def _together(comm: MPI.Comm, action: Any) -> None:
    """Do it on every rank; if it fails on any, every rank raises."""
    text = None
    try:
        action()
    except (OSError, ValueError, KeyError) as error:
        text = f"rank {comm.rank}: {error}"
    failed = [other for other in comm.allgather(text) if other is not None]
    if failed:
        raise ValueError(f"checkpoint: {failed[0]}")


def _write(path: Path, arrays: Mapping[str, np.ndarray], where: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, where=np.array(json.dumps(where)), **arrays)


def _replace(path: Path, text: str) -> None:
    """Put a file in another's place in one step."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _read(folder: Path, comm: MPI.Comm, training: Training, replica: Replica, setting: Mapping[str, Any]) -> None:
    whole = folder / (folder / "latest").read_text().strip()
    ranks = len(list(whole.glob("rank-*.npz")))
    if ranks != comm.size:
        raise ValueError(f"{whole} was written by {ranks} ranks, these are {comm.size}")
    with np.load(whole / f"rank-{comm.rank:04d}.npz", allow_pickle=False) as file:
        where = json.loads(str(file["where"]))
        for key, value in json.loads(json.dumps(dict(setting))).items():
            if where["setting"].get(key) != value:
                raise ValueError(f"{whole} is of a run with {key} = {where['setting'].get(key)}, here it is {value}")
        replica.model.weights[...] = file["weights"]
        replica.optimizer.load_state(_part(file, "optimizer"))
        replica.model.load_state(_part(file, "model"))
    training.number, training.settled = where["number"], where["settled"]


def _part(file: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key.partition(".")[2]: file[key] for key in file if key.startswith(f"{prefix}.")}
