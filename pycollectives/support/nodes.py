"""Nodes: ranks that share memory, by default all ranks of a machine."""

from __future__ import annotations

import os
import socket
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Place(NamedTuple):
    """The machine, process and cores of a rank."""

    machine: str  # see `machine_of_this_process`
    process: int  # its number on the machine; with the start time it identifies the process
    started: int
    cores: int  # the set of cores that it may use, as bits
    tuned: bool = False  # whether it has a selection table for this machine

    @classmethod
    def here(cls, *, tuned: bool = False) -> Place:
        """Return the place of this process; loads the engine."""
        from .native import core

        cores = sum(1 << number for number in os.sched_getaffinity(0))
        return cls(machine_of_this_process(), *core.own_process(), cores, tuned)

    @classmethod
    def decode(cls, text: bytes) -> Place:
        """Return the place from the result of `encode`."""
        machine, process, started, cores, tuned = text.decode().rsplit(" ", 4)
        return cls(machine, int(process), int(started), int(cores, 16), tuned == "tuned")

    def encode(self) -> bytes:
        """Return the place as bytes, which ranks exchange."""
        tuned = "tuned" if self.tuned else "untuned"
        return f"{self.machine} {self.process} {self.started} {self.cores:x} {tuned}".encode()


def neighbours_of(places: Sequence[Place], rank: int) -> list[tuple[int, int, int]]:
    """Return rank, process and start time of the other ranks on a rank's machine.

    >>> neighbours_of([Place("a", 7, 100, 1), Place("a", 8, 101, 1), Place("b", 7, 90, 1)], 0)
    [(1, 8, 101)]
    """
    return [
        (other, place.process, place.started)
        for other, place in enumerate(places)
        if place.machine == places[rank].machine and other != rank
    ]


def machine_of_this_process() -> str:
    """Return a text that two processes have in common only if they can share memory.

    The text names the kernel and its namespace of process numbers, by which ranks find each other's memory.
    """
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # without /proc nothing can be shared
        return f"{socket.gethostname()}:{os.getpid()}"
    return f"{kernel}:{namespace}:{os.getuid()}"


def ranks_of_kernel(machines: Sequence[str], rank: int) -> int:
    """Return the number of ranks that share the cores of a rank's machine, including other containers on it.

    >>> ranks_of_kernel(["a:pid:[1]:0", "a:pid:[2]:0", "b:pid:[1]:0"], 0)
    2
    """
    kernels = [machine.partition(":")[0] for machine in machines]
    return kernels.count(kernels[rank])


def has_core_per_rank(places: Sequence[Place]) -> bool:
    """Return True if the ranks of each kernel may together use at least one core per rank.

    >>> has_core_per_rank([Place("a", 7, 100, 0b11), Place("a", 8, 101, 0b11), Place("b", 7, 90, 0b1)])
    True
    >>> has_core_per_rank([Place("a", 7, 100, 0b1), Place("a", 8, 101, 0b1), Place("b", 7, 90, 0b1)])
    False
    """
    ranks: Counter[str] = Counter()
    cores: dict[str, int] = {}
    for place in places:
        kernel = place.machine.partition(":")[0]
        ranks[kernel] += 1
        cores[kernel] = cores.get(kernel, 0) | place.cores
    return all(cores[kernel].bit_count() >= number for kernel, number in ranks.items())


def farthest_of(nodes: Sequence[int], places: Sequence[Place]) -> int | None:
    """Return the first rank that is not on rank 0's machine; otherwise the first one on another node, or None.

    >>> places = [Place("a", 7, 100, 1), Place("a", 8, 101, 1), Place("b", 7, 90, 1)]
    >>> farthest_of([0, 1, 2], places), farthest_of([0, 1], places[:2]), farthest_of([0, 0], places[:2])
    (2, 1, None)
    """
    other = [rank for rank, node in enumerate(nodes) if node != nodes[0]]
    return min(other, key=lambda rank: places[rank].machine == places[0].machine, default=None)


def nodes_of(machines: Sequence[str], ranks_per_node: int | None) -> list[int]:
    """Return the node of each rank: `ranks_per_node` consecutive ranks of a machine; None for all its ranks.

    Nodes are numbered in the order of their lowest ranks.

    >>> nodes_of(["a", "b", "a", "b", "a"], None)
    [0, 1, 0, 1, 0]
    >>> nodes_of(["a", "b", "a", "b", "a"], 2)
    [0, 1, 0, 1, 2]
    """
    numbers: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    nodes = []
    for machine in machines:
        before = seen.get(machine, 0)
        seen[machine] = before + 1
        part = 0 if ranks_per_node is None else before // ranks_per_node
        nodes.append(numbers.setdefault((machine, part), len(numbers)))
    return nodes
