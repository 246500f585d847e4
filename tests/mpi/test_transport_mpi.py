"""Tests in C++ of classes that use MPI and have no binding: tests/cpp."""

import pytest
from mpi4py import MPI

from pycollectives import _testing_mpi


@pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="needs two ranks")
@pytest.mark.parametrize("name", _testing_mpi.cpp_tests())
def test_in_cpp(name):
    _testing_mpi.run_cpp_test(name)
