"""Tests in C++ of classes that use MPI and have no binding: tests/cpp. Import mpi4py.MPI first."""

def cpp_tests() -> list[str]:
    """Return their names."""

def run_cpp_test(name: str) -> None:
    """Run one; raises what it throws."""
