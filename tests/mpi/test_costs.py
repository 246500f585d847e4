"""What messages cost, where it is measured."""

from __future__ import annotations

import os

import pytest
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


def test_a_table_that_only_one_rank_cannot_read_is_an_error_on_all(monkeypatch):
    """With warnings as errors a table of another machine raises."""

    def is_tuned():
        if MPI.COMM_WORLD.rank == 0:
            raise RuntimeWarning("a table of another machine")
        return False

    monkeypatch.setattr("pycollectives.membership.opening.is_tuned", is_tuned)
    with pytest.raises(RuntimeWarning if MPI.COMM_WORLD.rank == 0 else pc.MismatchError, match="of another machine"):
        pc.Communicator(MPI.COMM_WORLD, timeout=60)
