"""What messages cost, where it is measured."""

from __future__ import annotations

import os

from mpi4py import MPI

import pycollectives as pc
from pycollectives.selection import tables


def test_costs_are_measured_between_nodes_with_a_core_per_rank():
    world = MPI.COMM_WORLD
    cores = set().union(*world.allgather(os.sched_getaffinity(0)))
    with pc.Communicator(world, ranks_per_node=1, timeout=60) as comm:
        found = world.allgather(comm.costs)
        assert len(set(found)) == 1
        assert (found[0] is not None) == (1 < world.size <= len(cores) and not tables.is_tuned())


def test_costs_that_are_given_are_taken():
    costs = pc.Costs(1e-6, 1e-6, 1e-9, 1e-10)
    with pc.Communicator(MPI.COMM_WORLD, ranks_per_node=1, timeout=60, costs=costs) as comm:
        assert comm.costs == costs
