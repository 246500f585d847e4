"""The error that ends a run of a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI


class RunError(Exception):
    """The run cannot continue. Every rank raises it with the same text."""


def require_none(comm: MPI.Comm, name: str, findings: Sequence[str] | None) -> None:
    """Raise RunError on every rank if rank 0 has findings; collective."""
    if findings := comm.bcast(findings):
        raise RunError(f"{name}: {len(findings)} findings\n  " + "\n  ".join(findings[:5]))
