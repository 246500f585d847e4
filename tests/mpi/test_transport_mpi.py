"""Tests in C++ of classes that use MPI and have no binding: tests/cpp."""

import pytest

from pycollectives import _testing_mpi


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", _testing_mpi.cpp_tests())
def test_in_cpp(name):
    _testing_mpi.run_cpp_test(name)
