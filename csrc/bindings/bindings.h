// Declarations that the bindings share. They have no logic, and each file binds one layer.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings/gil.h"
#include "core/types.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

namespace py = pybind11;

/// SHA-256 of the stub that this module was built for.
extern const char* const kInterface;

void bind_c_functions(py::module_& m);
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
void bind_counter(py::module_& m);
void bind_costs(py::module_& m);
void bind_simulation(py::module_& m);
void bind_parameter_server(py::module_& m);
void bind_parameter_server_simulation(py::module_& m);
void bind_cuda(py::module_& m);

/// The options that the collective and its simulation share, by their Python names. Throws TypeError for other names.
PartialAllreduceOptions options_from(const py::dict& arguments);

/// The value of a name. std::invalid_argument, which begins with `what`, if there is none.
template <class Value>
Value named(const std::map<std::string, Value>& table, const std::string& name, const char* what) {
  const auto found = table.find(name);
  if (found != table.end()) return found->second;
  std::string expected;
  for (const auto& [key, value] : table) expected += (expected.empty() ? "" : ", ") + key;
  throw std::invalid_argument(std::string(what) + ": expected one of " + expected + ", got '" + name + "'");
}

DataType data_type(const std::string& name);
ReduceOp reduce_op(const std::string& name);

/// Returns -1 for None. TypeError unless it is a number, ValueError unless it is >= 0. Needs the GIL.
Seconds timeout_from(py::handle timeout);

/// A parameter that `timeout_from` converts.
struct Timeout {
  operator Seconds() const { return seconds; }

  Seconds seconds = -1;
};

/// Lets Ctrl-C end a wait: takes the GIL, runs signal handlers, and throws their exception.
void run_signal_handlers();

}  // namespace pyc

namespace pybind11::detail {

template <>
struct type_caster<pyc::Timeout> {
  PYBIND11_TYPE_CASTER(pyc::Timeout, const_name("float | None"));
  bool load(handle timeout, bool) {
    value.seconds = pyc::timeout_from(timeout);
    return true;
  }
};

}  // namespace pybind11::detail
