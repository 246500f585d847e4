"""What tests on a GPU share. With several devices, rank r uses device r modulo their number."""

import pytest
from devices import Gpu
from mpi4py import MPI

from pycollectives.support.native import core


@pytest.fixture
def machine():
    return Gpu(ordinal=MPI.COMM_WORLD.rank % len(core.cuda_availability()["devices"]))
