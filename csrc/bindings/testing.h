// The parts of the extension module pycollectives._testing.
#pragma once

#include <pybind11/pybind11.h>

namespace pyc {

class Executor;

/// Of host memory (tests/cpp/host_executor.cc).
Executor& host_executor();

void bind_testing(pybind11::module_& t);
void bind_testing_abort(pybind11::module_& t);
void bind_testing_cpp(pybind11::module_& t);
void bind_testing_hop(pybind11::module_& t);
void bind_testing_plans(pybind11::module_& t);
void bind_testing_simulations(pybind11::module_& t);
void bind_testing_executors(pybind11::module_& t);
void bind_testing_cuda(pybind11::module_& t);

}  // namespace pyc
