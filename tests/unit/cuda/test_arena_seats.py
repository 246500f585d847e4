"""Who has mapped whose arena, among processes: an arena is freed when the others have ended their mappings, or died."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from devices import Simulated, needs_cuda

from pycollectives import _testing as testing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_cuda

OTHER = """
import mmap, sys
from devices import Simulated, testing
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0)
device = Simulated(2)
block = device.executor.allocate(2 << 20)
seats = testing.ArenaSeats(shared, 2, 1)
seats.take(device.executor, block.address)
seats.map_others()
print("mapped", flush=True)
sys.stdin.readline()
seats.release(lambda: None, lambda: None)
print("not mapped", flush=True)
sys.stdin.readline()
"""


class Rank:
    """The first rank of two, in this process; the other one has its arena mapped."""

    def __init__(self, shared: mmap.mmap, device: Simulated):
        self.arena = device.executor.allocate(2 << 20)
        self.seats = testing.ArenaSeats(shared, 2, 0)
        self.seats.take(device.executor, self.arena.address)
        self.seen: list[str] = []

    def release(self) -> bool:
        return self.seats.release(lambda: self.seen.append("unmapped"), lambda: self.seen.append("freed"))


@contextlib.contextmanager
def two_ranks(folder: Path) -> Iterator[tuple[Rank, subprocess.Popen[str]]]:
    path = folder / "seats"
    path.write_bytes(bytes(testing.ArenaSeats.bytes(2)))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    device = Simulated(1)
    rank = Rank(shared, device)
    command = [sys.executable, "-c", OTHER, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "mapped\n"
        rank.seats.map_others()
        yield rank, other
        other.kill()
    rank.arena.free()
    assert device.driver.problems(end=False) == []


def test_an_arena_is_freed_when_the_others_have_ended_their_mappings(tmp_path):
    with two_ranks(tmp_path) as (rank, other):
        assert not any(rank.release() for _ in range(3))
        assert rank.seen == ["unmapped"]
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "not mapped\n"
        assert all(rank.release() for _ in range(3))
        assert rank.seen == ["unmapped", "freed"]


@pytest.mark.parametrize("is_reaped", [False, True])
def test_an_arena_is_freed_when_who_has_it_mapped_has_died(tmp_path, is_reaped):
    with two_ranks(tmp_path) as (rank, other):
        assert not any(rank.release() for _ in range(3))
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        if is_reaped:
            other.wait()
        assert all(rank.release() for _ in range(3))
        assert rank.seen == ["unmapped", "freed"]
