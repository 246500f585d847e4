"""Prints a sweep as it goes: a table for each policy, a line for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .library import Domain, version
from .table import Column, Table

if TYPE_CHECKING:
    from .options import Sweep
    from .policies import PolicyName
    from .records import Record


def print_plan(sweep: Sweep, policies: list[PolicyName], ranks: int) -> None:
    """--list: the cells, without measuring them."""
    print(f"# ranks {ranks}")
    for policy in policies:
        for size in sweep.bytes:
            print(f"{policy} {size}")


def policy_table(
    what: str,
    policy: PolicyName,
    sweep: Sweep,
    *,
    ranks: int,
    domain: Domain,
    notes: list[str],
    origin: Record,
    columns: list[Column],
) -> Table:
    """`what` was measured, as the title says it."""
    return Table(
        f"pycollectives {policy.title} Allreduce {what} v{version()}",
        [
            f"ranks {ranks}, {domain}",
            *notes,
            f"dtype {sweep.dtype}, late {sweep.late}, algorithm {sweep.algorithm}, seed {sweep.seed}",
            f"iterations {sweep.iterations}, results {'verified' if sweep.verify else 'not verified'}",
            f"{origin['mpi']}, commit {origin['commit']}",
        ],
        columns,
    )
