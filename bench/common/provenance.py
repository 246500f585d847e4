"""Where a figure comes from: the commit, the MPI library and the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from pycollectives.diagnostics.provenance import commit_of

BENCH = Path(__file__).resolve().parent.parent


def mpi_name(library_version: str) -> str:
    """The first words of MPI_Get_library_version: 'Open MPI v5.0.11', 'MPICH Version: 5.0.0'."""
    lines = library_version.strip("\0 \n").splitlines()
    return " ".join(lines[0].split(",")[0].split()) if lines else "unknown"


def machine() -> str:
    return f"{_cpu_model()}, {os.cpu_count()} cores, {platform.system()}"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def origin(library_version: str) -> dict[str, str | None]:
    """The keys of every record."""
    return {"commit": commit_of(BENCH.parent), "mpi": mpi_name(library_version), "machine": machine()}
