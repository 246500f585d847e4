"""Checkpoints: folders with a file per rank in NumPy's format; `latest` names the newest complete checkpoint.

    CHECKPOINT/latest                  "step-00000120.3"
    CHECKPOINT/step-00000120.3/rank-0003.npz

A rank's file has its weights, the state of the model, of the optimizer and of other parts, and the rank's next step,
which may differ between ranks. `latest` is replaced when the files of all ranks are on the disk. After that, the
previous checkpoint is deleted. If a job is killed or a node crashes, one of the two checkpoints is complete.

If a call fails on one rank, every rank raises an error, so no rank waits for the failed rank.
"""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .archive import pack, read, unpack
from .files import force, replace
from .output import together
from .reductions import reduced
from .registry import Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .archive import HasState
    from .loop import Training
    from .replica import Replica

_together = partial(together, "checkpoint")


def exists(folder: Path, comm: MPI.Comm) -> bool:
    """Whether rank 0 finds a checkpoint; collective."""
    return _together(comm, lambda: (folder / "latest").exists(), by=0)


def forget(folder: Path, comm: MPI.Comm, results: Iterable[Path] = ()) -> None:
    """Delete `latest`, so that training begins from step 0; collective. The checkpoint's files stay until `save`.

    Rank 0 then deletes the previous run's files `results`.
    """
    _together(comm, lambda: _forget(folder, results), by=0)


def _forget(folder: Path, results: Iterable[Path]) -> None:
    _remove(folder / "latest")
    for path in results:
        if path.is_file():
            path.unlink()


def save(
    folder: Path,
    comm: MPI.Comm,
    training: Training,
    replica: Replica,
    setting: Mapping[str, Any],
    others: Mapping[str, HasState] = MappingProxyType({}),
) -> None:
    """Write a checkpoint, and delete the previous one; collective, after the replicas were made equal.

    All ranks share the folder's file system. `setting` must be the same in a run that continues from this checkpoint.
    `others` are other parts to save, by name.
    """
    newest = reduced(comm, training.position, MPI.MAX)
    name = _together(comm, lambda: _cleared(folder, f"step-{newest:08d}.{training.settled}"), by=0)
    arrays = pack(replica.model, optimizer=replica.optimizer, **others)
    where: dict[str, Any] = {"ranks": comm.size, "number": training.number, "settled": training.settled}
    where["setting"] = dict(setting)
    if training.by_speed:
        where |= {"taken": training.taken, "by_speed": training.by_speed}
    _together(comm, lambda: _write(_file_of(folder / name, comm.rank), arrays, where))
    _together(comm, lambda: _require_all(folder / name, comm.size), by=0)
    _together(comm, lambda: replace(folder / "latest", name), by=0)
    if comm.rank == 0:
        _remove_all_but(folder, name)


def load(
    folder: Path,
    comm: MPI.Comm,
    training: Training,
    replica: Replica,
    setting: Mapping[str, Any],
    others: Mapping[str, HasState] = MappingProxyType({}),
) -> None:
    """Load a checkpoint with the same parts; collective.

    Another number of ranks may have saved it, since replicas were equal then. A rank without a file of its own
    uses another rank's file, in which only the optimizer's state and the step may differ. All ranks raise ValueError if
    settings differ, the checkpoint has more steps than this run takes, or a file is damaged or missing.
    """
    whole = folder / _together(comm, lambda: _newest_there(folder), by=0)
    _together(comm, lambda: _take_up(whole, comm, training, replica, setting, others))


def newest(folder: Path) -> str:
    """Return the name of the newest checkpoint in a folder; OSError if the folder has no checkpoint."""
    name = (folder / "latest").read_text(encoding="utf-8").strip()
    if not re.fullmatch(r"step-[0-9]+\.[0-9]+(\.again)*", name):
        raise ValueError(f"{folder / 'latest'}: expected the name of a checkpoint in this folder, got {name[:200]!r}")
    return name


def _newest_there(folder: Path) -> str:
    name = newest(folder)
    if not (folder / name).is_dir() or (folder / name).is_symlink():
        raise ValueError(f"{folder / 'latest'} names {name!r}, which does not exist")
    return name


def _cleared(folder: Path, name: str) -> str:
    """Remove the files of a killed run, and return a name other than the previous checkpoint's.

    Both names would have the same step if a finished training job is resumed.
    """
    before = newest(folder) if (folder / "latest").exists() else ""
    _remove_all_but(folder, before)
    return f"{name}.again" if name == before else name


def _remove_all_but(folder: Path, name: str) -> None:
    for other in folder.glob("step-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)


def _write(path: Path, arrays: Mapping[str, np.ndarray], where: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        content: dict[str, Any] = {"where": np.array(json.dumps(where)), **arrays}
        np.savez(file, **content)
    force(path)
    force(path.parent)


def _require_all(whole: Path, ranks: int) -> None:
    for rank in range(ranks):
        if not _file_of(whole, rank).exists():
            raise ValueError(f"expected the file of rank {rank} in {whole}, found none: ranks must share the folder")


def _remove(path: Path) -> None:
    if path.exists():
        path.unlink()
        force(path.parent)


def _count_files(whole: Path) -> int:
    first = _file_of(whole, 0)
    ranks: int = json.loads(str(read(first)["where"]))["ranks"]
    return ranks


def _file_of(whole: Path, rank: int) -> Path:
    return whole / f"rank-{rank:04d}.npz"


def _take_up(
    whole: Path,
    comm: MPI.Comm,
    training: Training,
    replica: Replica,
    setting: Mapping[str, Any],
    others: Mapping[str, HasState],
) -> None:
    file = read(_file_of(whole, comm.rank % _count_files(whole)))
    where = json.loads(str(file["where"]))
    for key, value in json.loads(json.dumps(dict(setting))).items():
        before = where["setting"].get(key)
        if before != value:
            raise ValueError(f"{whole} is from a run with {key} = {_typed(before)}; this run has {_typed(value)}")
    taken, by_speed = where.get("taken", 0), where.get("by_speed")
    if training.by_speed and by_speed and by_speed != training.by_speed:  # batches have another length
        taken = taken // by_speed * training.by_speed
    begun = taken // training.by_speed if training.by_speed else where["number"]
    if begun > training.steps:
        raise ValueError(f"{whole} is from a run that has taken {begun} steps; this run takes {training.steps}")
    unpack(file, replica.model, optimizer=replica.optimizer, **others)
    training.number, training.taken, training.settled = where["number"], taken, where["settled"]


def _typed(setting: Any) -> str:
    """Return a setting as it is written on the command line."""
    return str(Choice(**setting) if isinstance(setting, dict) and "name" in setting else setting)
