"""What a benchmark asks the library about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pycollectives as pc

from .launch import RunError

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Domain:
    """The ranks that share a board, or each rank alone: everything over MPI."""

    ranks_per_node: int

    @property
    def path(self) -> str:
        return "board" if self.ranks_per_node > 1 else "flat"

    def __str__(self) -> str:
        return f"path {self.path}, ranks per node {self.ranks_per_node}"

    @classmethod
    def of(cls, comm: MPI.Comm, ranks_per_node: int | None) -> Domain:
        """Collective. What a Communicator makes of `ranks_per_node` on this machine."""
        try:
            communicator = pc.Communicator(comm, ranks_per_node=ranks_per_node)
        except ValueError as error:  # of the argument, which is the same on every rank
            raise RunError(str(error)) from error
        with communicator:
            return cls(int(getattr(communicator, "ranks_per_node", None) or 1))


def version() -> str:
    """0.1 of 0.1.2."""
    return ".".join(pc.__version__.split(".")[:2])
