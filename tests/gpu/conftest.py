"""What tests on a GPU share. With several devices, rank r uses device r modulo their number.

PYC_SIMULATED_GPU=1 has them on the simulated driver, which is how tests/gpu/offline.sh is rehearsed.
"""

import os

import pytest
from device_programs import simulated_device
from devices import Gpu
from mpi4py import MPI

from pycollectives.support.native import core

SIMULATED = os.environ.get("PYC_SIMULATED_GPU") == "1"


@pytest.fixture
def scale():
    """Arrays of megabytes are divided by it: a simulated device has the speed and the memory of a core."""
    return 64 if SIMULATED else 1


@pytest.fixture
def machine():
    rank = MPI.COMM_WORLD.rank
    if SIMULATED:
        with simulated_device(rank) as simulated:
            yield simulated
    else:
        yield Gpu(ordinal=rank % len(core.cuda_availability()["devices"]))
