"""Tests in C++ of classes that use MPI and have no binding: tests/cpp."""

import pytest
from mpi4py import MPI

from pycollectives import _testing


@pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="needs two ranks")
@pytest.mark.parametrize("name", [name for name in _testing.cpp_tests() if name.startswith("mpi_")])
def test_in_cpp(name):
    _testing.run_cpp_test(name)
