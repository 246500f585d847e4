"""The machine of a measurement: its processor, its cores and its MPI library."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """The properties that must be the same for a measurement to apply.

    >>> print(Machine("AMD EPYC", 2, "Open MPI v5.0.11"))
    AMD EPYC, 2 cores, Open MPI v5.0.11
    """

    cpu: str  # the processor's model
    cores: int  # of the whole machine, even if this process may not use all of them
    mpi: str  # name and version of the library

    @classmethod
    @functools.cache
    def here(cls) -> Machine:
        """Return this process's machine; loads MPI."""
        from .native import LIBRARY

        return cls(cpu_model(), os.cpu_count() or 1, LIBRARY)

    def as_json(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.mpi}"


def cpu_model() -> str:
    """Return the processor's model, or at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()
