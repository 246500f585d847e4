"""Tests in C++ of classes that have no binding: tests/cpp."""

import pytest

from pycollectives import _testing


@pytest.mark.parametrize("name", [name for name in _testing.cpp_tests() if not name.startswith("mpi_")])
def test_in_cpp(name):
    _testing.run_cpp_test(name)
