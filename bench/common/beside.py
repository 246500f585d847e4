"""Measures a policy at a message size, beside MPI in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .cell import Cell
from .ideal import policy_waits, synchronous_waits
from .measure import measure
from .subjects import MpiAllreduce, Operand, PartialAllreduce
from .summary import Summary

if TYPE_CHECKING:
    from mpi4py import MPI

    from .options import Sweep
    from .policies import PolicyName
    from .procedure import Procedure


def measure_cell(
    comm: MPI.Comm,
    sweep: Sweep,
    policy: PolicyName,
    size: int,
    procedure: Procedure,
    baselines: tuple[type[MpiAllreduce], ...] = (MpiAllreduce,),
) -> Cell | None:
    """Collective; None on all ranks but 0."""
    operand = Operand(sweep.dtype, size, sweep.seed, sweep.verify)
    ours = PartialAllreduce(
        comm, operand, policy, late=sweep.late, algorithm=sweep.algorithm, ranks_per_node=sweep.ranks_per_node
    )
    theirs = [baseline(comm, operand) for baseline in baselines]
    samples, *others = measure(comm, [ours, *theirs], procedure)
    if comm.rank != 0:
        return None
    initiators = np.array(_counted(ours.initiators, procedure.warmup))
    return Cell(
        latency=Summary.of(samples.latencies * 1e6),
        mpi={subject.name: Summary.of(other.latencies * 1e6) for subject, other in zip(theirs, others, strict=True)},
        active_mean=float(np.mean(_counted(ours.active, procedure.warmup))),
        ideal_us=float(policy_waits(policy, samples.arrivals, initiators).mean() * 1e6),
        ideal_mpi_us=float(synchronous_waits(others[0].arrivals).mean() * 1e6),
        algorithm=ours.algorithm,
    )


def _counted(blocks: list[list[int]], warmup: int) -> list[int]:
    return [value for block in blocks for value in block[warmup:]]
