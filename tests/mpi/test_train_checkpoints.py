"""Checkpoints of several ranks: the newest whole one is kept, whatever happens, and what does not fit is refused."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest
from train_jobs import WORLD, Keeping, P, blobs, numbers, refused_everywhere

from pycollectives.train import checkpoint
from pycollectives.train.loop import Training
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.replica import Replica
from pycollectives.train.synchronizers import Synchronizer


class Saved(NamedTuple):
    training: Training
    replica: Replica


def replica_of(value, *, momentum=0.9):
    """A replica whose every number is `value`, and where it stands."""
    model = MLP(blobs(), hidden=2)
    model.weights[:] = value
    optimizer = SGD(model.weights, lambda number: 1.0, momentum=momentum)
    for array in optimizer.state().values():
        array[:] = -value
    return Saved(
        Training(100, number=10 * value + WORLD.rank, settled=value), Replica(model, optimizer, Synchronizer())
    )


AS_JSON = {"seed": 1, "method": {"name": "synchronous", "options": {}}}


def save(folder, value, world=WORLD, setting=AS_JSON):
    checkpoint.save(folder, world, *replica_of(value), setting)


def loaded(folder, world=WORLD, setting=AS_JSON, by=WORLD.rank):
    """The value in the newest checkpoint, if all of its numbers are that; `by`: the rank that wrote the file."""
    saved = replica_of(0)
    checkpoint.load(folder, world, *saved, setting)
    (value,) = {*np.unique(saved.replica.model.weights), *np.unique(-saved.replica.optimizer.state()["velocity"])}
    assert (saved.training.number, saved.training.settled) == (10 * value + by, value)
    return value


def test_the_newest_checkpoint_is_kept_alone(output):
    assert not checkpoint.exists(output, WORLD)
    for value in (1, 2, 3):
        save(output, value)
        assert checkpoint.exists(output, WORLD)
        assert loaded(output) == value
        assert len(list(output.glob("step-*"))) == 1
        WORLD.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_checkpoint_of_fewer_ranks_is_for_more(output):
    part = WORLD.Split(color=int(WORLD.rank == P - 1), key=WORLD.rank)
    if WORLD.rank < P - 1:
        save(output, 1, part)
    WORLD.Barrier()
    part.Free()
    assert loaded(output, by=WORLD.rank % (P - 1)) == 1


def test_a_checkpoint_of_more_ranks_is_for_fewer(output):
    save(output, 1)
    part = WORLD.Split(color=int(WORLD.rank == P - 1), key=WORLD.rank)
    if P == 1 or WORLD.rank < P - 1:
        assert loaded(output, part) == 1
    WORLD.Barrier()
    part.Free()


def test_what_other_ranks_have_left_there_is_no_hindrance(output):
    """A run that begins anew, in the folder of one with more ranks."""
    save(output, 1)
    if WORLD.rank == 0:
        (where,) = output.glob("step-*")
        (where / f"rank-{P:04d}.npz").write_bytes(b"of one more rank")
        (output / "step-00000099.9").mkdir()
        (output / "step-00000099.9" / "rank-0000.npz").write_bytes(b"of a run that was killed")
    WORLD.Barrier()
    assert loaded(output) == 1
    save(output, 1)
    assert loaded(output) == 1
    assert len(list(output.glob("step-*"))) == 1


def test_what_a_killed_run_has_left_is_not_in_the_next_checkpoint(output):
    """It had more ranks, and came to the same step."""
    save(output, 1)
    (where,) = output.glob("step-*")
    save(output, 2)
    if WORLD.rank == 0:
        where.mkdir()
        (where / f"rank-{P:04d}.npz").write_bytes(b"of one more rank")
    WORLD.Barrier()
    save(output, 1)
    assert loaded(output) == 1


def test_a_checkpoint_of_another_setting_is_refused(output):
    save(output, 1)
    refused_everywhere("a run with seed = 1; this run has 2", lambda: loaded(output, setting={**AS_JSON, "seed": 2}))


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "gone", "no checkpoint", "latest"])
def test_a_damaged_checkpoint_is_refused(output, damage):
    """On all ranks, though it is the file of one."""
    save(output, 1)
    if WORLD.rank == 0:
        (path,) = output.glob(f"step-*/rank-{P - 1:04d}.npz")
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "changed":
            middle = content.index(np.float32(1).tobytes() * 3)
            path.write_bytes(content[:middle] + b"x" + content[middle + 1 :])
        elif damage == "gone":
            path.rename(path.with_name("rank-9999.npz"))
        elif damage == "no checkpoint":
            (output / "latest").unlink()
        else:
            (output / "latest").write_text("step-00000000.0")
    WORLD.Barrier()
    refused_everywhere("checkpoint: ", loaded, output)


def fails(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("rank", [0, P - 1])
def test_a_checkpoint_that_one_rank_cannot_write(output, rank, monkeypatch):
    save(output, 1)
    with monkeypatch.context() as patch:
        if WORLD.rank == rank:
            patch.setattr(np, "savez", fails)
        refused_everywhere(f"rank {rank}: .*No space left", save, output, 2)
    assert loaded(output) == 1
    save(output, 3)
    assert loaded(output) == 3
    assert len(list(output.glob("step-*"))) == 1


def test_the_checkpoint_before_survives_an_end_before_the_new_one_is_named(output, monkeypatch):
    save(output, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "replace", fails)
        refused_everywhere("rank 0: .*No space left", save, output, 2)
    assert loaded(output) == 1
    save(output, 2)
    assert loaded(output) == 2


def test_the_same_step_may_be_saved_twice(output, monkeypatch):
    """A run that had finished is resumed, and takes no step: its checkpoint stays until the new one is named."""
    save(output, 1)
    with monkeypatch.context() as patch:
        if WORLD.rank == P - 1:
            patch.setattr(np, "savez", fails)
        refused_everywhere(f"rank {P - 1}: .*No space left", save, output, 1)
    assert loaded(output) == 1
    for _ in range(3):
        save(output, 1)
        assert loaded(output) == 1


def test_settings_of_a_checkpoint_are_readable(output):
    save(output, 1)
    (path,) = output.glob(f"step-*/rank-{WORLD.rank:04d}.npz")
    with np.load(path, allow_pickle=False) as file:
        where = json.loads(str(file["where"]))
    assert where == {"ranks": P, "number": 10 + WORLD.rank, "settled": 1, "setting": AS_JSON}


def test_running_statistics_are_in_a_checkpoint(output):
    saved, loaded = (
        Replica(Keeping(numbers()), SGD(np.zeros(0, np.float32), lambda number: 1.0), Synchronizer()) for _ in "ab"
    )
    saved.model.kept["mean"][:] = 5
    checkpoint.save(output, WORLD, Training(9), saved, AS_JSON)
    checkpoint.load(output, WORLD, Training(9), loaded, AS_JSON)
    np.testing.assert_array_equal(loaded.model.kept["mean"], [5, 5])
    assert loaded.model.kept["count"] == 10 + WORLD.rank
