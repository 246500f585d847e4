"""C++ tests of classes that use MPI and have no binding (tests/cpp). Import mpi4py.MPI first."""

def cpp_tests() -> list[str]:
    """Return the names of the tests."""

def run_cpp_test(name: str) -> None:
    """Run a test; collective over MPI_COMM_WORLD. A RuntimeError gives the failure and its place."""
