"""Tests in C++ of classes that have no binding: tests/cpp."""

import pytest

from pycollectives import _testing


@pytest.mark.parametrize("name", _testing.cpp_tests())
def test_in_cpp(name):
    _testing.run_cpp_test(name)
