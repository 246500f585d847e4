// The extension module pycollectives._testing_mpi: C++ tests of classes that use MPI and have no binding.
#include "bindings/testing.h"

PYBIND11_MODULE(_testing_mpi, t) { pyc::bind_testing_cpp(t); }
