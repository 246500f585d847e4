// What the files of the bindings share. No logic here: each file binds one layer.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/gil.h"
#include "core/types.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

namespace py = pybind11;

void bind_groups(py::module_& m);
void bind_schedule(py::module_& m);
void bind_engine(py::module_& m);
void bind_partial_allreduce(py::module_& m);
void bind_device_allreduce(py::module_& m);
void bind_partial_reduce(py::module_& m);
void bind_device_partial_reduce(py::module_& m);
void bind_pairwise_averaging(py::module_& m);
void bind_device_pairwise(py::module_& m);
void bind_neighborhood(py::module_& m);
void bind_hop(py::module_& m);
void bind_hop_queues(py::module_& m);
void bind_costs(py::module_& m);
void bind_simulation(py::module_& m);
void bind_parameter_server(py::module_& m);
void bind_parameter_server_simulation(py::module_& m);
void bind_cuda(py::module_& m);
void bind_testing(py::module_& m);
// Parts of it:
void bind_testing_abort(py::module_& t);
void bind_testing_hop(py::module_& t);
void bind_testing_executors(py::module_& t);
void bind_testing_cuda(py::module_& t);

/// The options that the collective and its simulation have in common, from their Python names.
struct PolicyArguments {
  std::string policy;
  int policy_size;
  std::uint64_t seed;
  double grace;
  std::string late;
  std::string missed;
  std::optional<std::uint64_t> max_staleness;
  std::string activation;
  std::string algorithm;
  std::size_t history;
  std::string op;
};
PartialAllreduceOptions options_from(const PolicyArguments& arguments);

DataType data_type(const std::string& name);
ReduceOp reduce_op(const std::string& name);

/// -1 for None; TypeError unless a number, ValueError unless >= 0. Needs the GIL.
Seconds timeout_from(py::handle timeout);

/// Lets Ctrl-C end a wait: takes the GIL, runs signal handlers, throws what they raise.
void run_signal_handlers();

}  // namespace pyc
