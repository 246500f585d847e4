"""One cell of a sweep: a policy at a message size, beside MPI in the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .library import Domain
    from .options import Sweep
    from .policies import PolicyName
    from .records import Record
    from .summary import Summary


@dataclass(frozen=True)
class Cell:
    """Microseconds; meaningful on rank 0."""

    latency: Summary
    mpi: dict[str, Summary]  # by the baseline's name
    active_mean: float
    ideal_us: float
    ideal_mpi_us: float
    algorithm: str

    @property
    def speedup(self) -> float:
        return self.mpi["MPI_Allreduce"].mean / self.latency.mean

    @property
    def ideal_speedup(self) -> float | None:
        """None: an ideal call takes no time at all."""
        return self.ideal_mpi_us / self.ideal_us if self.ideal_us > 0 else None

    @property
    def ideal_fraction(self) -> float | None:
        """The part of the ideal speed-up that was reached."""
        return self.speedup / self.ideal_speedup if self.ideal_speedup else None


def cell_record(
    bench: str, sweep: Sweep, policy: PolicyName, size: int, ranks: int, domain: Domain, cell: Cell
) -> Record:
    """The keys that all cells have; the caller adds its own and where they come from."""
    return {
        "bench": bench,
        "collective": "partial_allreduce",
        "policy": str(policy),
        "path": domain.path,
        "ranks": ranks,
        "ranks_per_node": domain.ranks_per_node,
        "bytes": size,
        "dtype": str(sweep.dtype),
        "algorithm": sweep.algorithm,
        "algorithm_used": cell.algorithm,
        "late": sweep.late,
        "seed": sweep.seed,
        "iterations": sweep.iterations,
        "latency_us": cell.latency.as_json(),
        "active_mean": round(cell.active_mean, 3),
        "ideal_us": round(cell.ideal_us, 3),
        "baseline": "MPI_Allreduce",
        "baseline_us": cell.mpi["MPI_Allreduce"].as_json(),
        "speedup": round(cell.speedup, 4),
        "verified": sweep.verify,
    }
