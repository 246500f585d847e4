"""Checkpoints: a folder for each, with a file per rank in NumPy's format; `latest` names the newest that is whole.

    CHECKPOINT/latest                  "step-00000120.3"
    CHECKPOINT/step-00000120.3/rank-0003.npz

A rank's file has its weights, the optimizer's and the model's state, and where the rank stands: its next step, which
may be another than its neighbour's. `latest` is replaced after all ranks have written, so a job that is killed on the
way leaves the checkpoint before. Files are not forced to the disk: that is for power failures, and takes seconds.

Whatever fails, on whichever rank, every rank raises: none is left waiting for one that has given up.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .loop import Replica, Training

__all__ = ["exists", "load", "save"]

T = TypeVar("T")


def exists(folder: Path, comm: MPI.Comm) -> bool:
    """Whether there is one, as rank 0 sees it; collective."""
    return _together(comm, lambda: (folder / "latest").exists(), by=0)


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
    name = _together(comm, lambda: _cleared(folder, f"step-{newest:08d}.{training.settled}"), by=0)
    arrays = {"weights": replica.model.weights}
    arrays |= {f"optimizer.{key}": value for key, value in replica.optimizer.state().items()}
    arrays |= {f"model.{key}": value for key, value in replica.model.state().items()}
    where = {"number": training.number, "settled": training.settled, "setting": dict(setting)}
    _together(comm, lambda: _write(folder / name / f"rank-{comm.rank:04d}.npz", arrays, where))
    _together(comm, lambda: _replace(folder / "latest", name), by=0)
    if comm.rank == 0:
        _remove_all_but(folder, name)


def load(folder: Path, comm: MPI.Comm, training: Training, replica: Replica, setting: Mapping[str, Any]) -> None:
    """Take up what `save` wrote; collective.

    Raises
    ------
    ValueError
        It was written by another number of ranks, for another setting or after more steps than are to be taken; or a
        file is damaged. On all ranks.
    """
    whole = folder / _together(comm, lambda: _latest(folder), by=0)
    _together(comm, lambda: _read(whole, comm, training, replica, setting))


def _together(comm: MPI.Comm, action: Callable[[], T], *, by: int | None = None) -> T:
    """Do it on every rank, or by one for all; if it fails on any, every rank raises."""
    done, failed, cause = None, None, None
    if by in (None, comm.rank):
        try:
            done = action()
        except Exception as error:  # whatever it is, such as BadZipFile: the others wait for an answer
            failed, cause = f"rank {comm.rank}: {error or type(error).__name__}", error
    told = comm.allgather((done if by is not None else None, failed))
    failures = [text for _, text in told if text is not None]
    if failures:
        raise ValueError(f"checkpoint: {failures[0]}") from cause
    return cast("T", done if by is None else told[by][0])


def _latest(folder: Path) -> str:
    return (folder / "latest").read_text(encoding="utf-8").strip()


def _cleared(folder: Path, name: str) -> str:
    """Remove what a run that was killed has left, and return a name that the checkpoint before does not have.

    It has the same if a training was begun anew in its folder.
    """
    before = _latest(folder) if (folder / "latest").exists() else ""
    _remove_all_but(folder, before)
    return f"{name}.again" if name == before else name


def _remove_all_but(folder: Path, name: str) -> None:
    for other in folder.glob("step-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)


def _write(path: Path, arrays: Mapping[str, np.ndarray], where: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, where=np.array(json.dumps(where)), **arrays)


def _replace(path: Path, text: str) -> None:
    """Put a file in another's place in one step."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _read(whole: Path, comm: MPI.Comm, training: Training, replica: Replica, setting: Mapping[str, Any]) -> None:
    ranks = len(list(whole.glob("rank-*.npz")))
    if ranks != comm.size:
        raise ValueError(f"{whole} was written by {ranks} ranks, these are {comm.size}")
    with np.load(whole / f"rank-{comm.rank:04d}.npz", allow_pickle=False) as file:
        where = json.loads(str(file["where"]))
        for key, value in json.loads(json.dumps(dict(setting))).items():
            if where["setting"].get(key) != value:
                raise ValueError(f"{whole} is of a run with {key} = {where['setting'].get(key)}, here it is {value}")
        if where["number"] > training.steps:
            raise ValueError(f"{whole} is of a run that has taken {where['number']} steps, here are {training.steps}")
        replica.model.weights[...] = file["weights"]
        replica.optimizer.load_state(_part(file, "optimizer"))
        replica.model.load_state(_part(file, "model"))
    training.number, training.settled = where["number"], where["settled"]


def _part(file: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key.partition(".")[2]: file[key] for key in file if key.startswith(f"{prefix}.")}
