// Python's names for the engine's options, and the other way round.
#include <cmath>
#include <map>
#include <stdexcept>

#include "bindings/bindings.h"

namespace pyc {
namespace {

template <class Value>
Value lookup(const std::map<std::string, Value>& table, const std::string& name, const char* what) {
  const auto found = table.find(name);
  if (found != table.end()) return found->second;
  std::string expected;
  for (const auto& [key, value] : table) expected += (expected.empty() ? "" : ", ") + key;
  throw std::invalid_argument(std::string(what) + ": expected one of " + expected + ", got '" + name + "'");
}

}  // namespace

DataType data_type(const std::string& name) {
  std::map<std::string, DataType> table;
  for (int i = 0; i < kDataTypes; ++i) table[std::string(name_of(DataType(i)))] = DataType(i);
  return lookup(table, name, "dtype");
}

ReduceOp reduce_op(const std::string& name) {
  std::map<std::string, ReduceOp> table;
  for (int i = 0; i < kReduceOps; ++i) table[std::string(name_of(ReduceOp(i)))] = ReduceOp(i);
  return lookup(table, name, "op");
}

PartialAllreduceOptions options_from(const PolicyArguments& arguments) {
  using Kind = Policy::Kind;
  using Late = PartialAllreduceOptions::Late;
  using Missed = PartialAllreduceOptions::Missed;
  PartialAllreduceOptions options;
  options.policy.kind = lookup<Kind>({{"solo", Kind::kSolo},
                                      {"majority", Kind::kAnyOf},
                                      {"any_of", Kind::kAnyOf},
                                      {"all_of", Kind::kAllOf},
                                      {"quorum", Kind::kQuorum},
                                      {"full", Kind::kFull}},
                                     arguments.policy, "policy");
  options.policy.count = arguments.policy == "majority" ? 1 : arguments.policy_size;
  options.policy.seed = arguments.seed;
  options.policy.grace = arguments.grace;
  options.late = lookup<Late>({{"accumulate", Late::kAccumulate}, {"replace", Late::kReplace}, {"drop", Late::kDrop}},
                              arguments.late, "late");
  options.missed = lookup<Missed>({{"latest", Missed::kLatest}, {"sum", Missed::kSum}}, arguments.missed, "missed");
  options.max_staleness = arguments.max_staleness;
  options.activation = arguments.activation;
  options.algorithm = arguments.algorithm;
  options.history = arguments.history;
  options.op = reduce_op(arguments.op);
  return options;
}

Seconds timeout_from(py::handle timeout) {
  if (timeout.is_none()) return -1;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::type_error("timeout: expected seconds or None, got " + py::repr(timeout).cast<std::string>());
  }
  if (std::isnan(seconds) || seconds < 0) {
    throw py::value_error("timeout: expected seconds >= 0 or None, got " + py::repr(timeout).cast<std::string>());
  }
  return std::isinf(seconds) ? -1 : seconds;
}

void run_signal_handlers() {
  const GilHeld gil;
  if (never_unwound([] { return PyErr_CheckSignals(); }) != 0) throw py::error_already_set();
}

}  // namespace pyc
