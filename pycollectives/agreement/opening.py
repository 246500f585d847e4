"""Make the engines of a communicator after its ranks have agreed on the options."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..support.costs import REDUCE_PER_BYTE, Costs
from ..support.launchers import check_fault_tolerant
from ..support.nodes import farthest_of, has_core_per_rank, neighbours_of, nodes_of, ranks_of_kernel

if TYPE_CHECKING:
    from mpi4py import MPI

    from .. import _core
    from ..support.nodes import Place
    from .options import Options


def engines_of(
    comm: MPI.Comm, options: Options, places: list[Place], limit: float | None
) -> tuple[_core.Engine, _core.Engine | None, list[int], Costs | None]:
    """Return the engine, the checks' engine, the node of each rank, and the costs of messages; collective over `comm`.

    `limit`: seconds to wait for the other ranks; None for the limit in the options.
    """
    from ..support.native import core

    machines = [place.machine for place in places]
    make_engine = partial(
        core.Engine.mpi,
        comm,
        local_ranks=ranks_of_kernel(machines, comm.rank),
        neighbours=neighbours_of(places, comm.rank),
        progress=options.progress,
        exit_timeout=options.exit_timeout,
    )
    engine = make_engine()
    check_engine = None
    try:
        if options.failures.on_failure == "continue":
            check_fault_tolerant(comm.size, engine)
        check_engine = make_engine() if options.check else None
        if options.heartbeat_timeout is not None:
            engine.start_heartbeat(machines=nodes_of(machines, None), limit=options.heartbeat_timeout)
        nodes = nodes_of(machines, options.ranks_per_node)
        costs = options.costs or measured_costs(engine, nodes, places, options.timeout if limit is None else limit)
    except BaseException:
        for made in (engine, check_engine):
            if made is not None:
                made.abort()
                made.supersede()
        raise
    return engine, check_engine, nodes, costs


def measured_costs(engine: _core.Engine, nodes: list[int], places: list[Place], timeout: float | None) -> Costs | None:
    """Return measured costs of messages between nodes, equal on all ranks; None if not needed; collective."""
    from ..support.native import core

    other = farthest_of(nodes, places)
    if other is None or not has_core_per_rank(places) or any(place.tuned for place in places):
        return None
    latency, overhead, gap_per_byte = core.measure_messages(engine, other=other, timeout=timeout)
    return Costs(latency, overhead, gap_per_byte, REDUCE_PER_BYTE)
