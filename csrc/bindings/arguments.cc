// Translates Python's names to the engine's options.
#include <cmath>

#include "bindings/bindings.h"

namespace pyc {
DataType data_type(const std::string& name) {
  std::map<std::string, DataType> table;
  for (int i = 0; i < kDataTypes; ++i) table[std::string(name_of(DataType(i)))] = DataType(i);
  return named(table, name, "dtype");
}

ReduceOp reduce_op(const std::string& name) {
  std::map<std::string, ReduceOp> table;
  for (int i = 0; i < kReduceOps; ++i) table[std::string(name_of(ReduceOp(i)))] = ReduceOp(i);
  return named(table, name, "op");
}

PartialAllreduceOptions options_from(const py::dict& arguments) {
  using Kind = Policy::Kind;
  using Late = PartialAllreduceOptions::Late;
  using Missed = PartialAllreduceOptions::Missed;
  std::size_t taken = 0;
  const auto take = [&]<class Value>(const char* name, Value otherwise) {
    if (!arguments.contains(name)) return otherwise;
    ++taken;
    return arguments[name].cast<Value>();
  };
  PartialAllreduceOptions options;
  const auto policy = take("policy", std::string("solo"));
  options.policy.kind = named<Kind>({{"solo", Kind::kSolo},
                                     {"majority", Kind::kAnyOf},
                                     {"any_of", Kind::kAnyOf},
                                     {"all_of", Kind::kAllOf},
                                     {"quorum", Kind::kQuorum},
                                     {"full", Kind::kFull}},
                                    policy, "policy");
  const int count = take("policy_size", 0);
  options.policy.count = policy == "majority" ? 1 : count;
  options.policy.seed = take("seed", std::uint64_t{0});
  options.policy.grace = take("grace", 0.0);
  options.late = named<Late>({{"accumulate", Late::kAccumulate}, {"replace", Late::kReplace}, {"drop", Late::kDrop}},
                             take("late", std::string("accumulate")), "late");
  options.missed = named<Missed>({{"latest", Missed::kLatest}, {"sum", Missed::kSum}},
                                 take("missed", std::string("latest")), "missed");
  options.max_staleness = take("max_staleness", std::optional<std::uint64_t>());
  options.activation = take("activation", std::string("tree"));
  options.algorithm = take("algorithm", std::string("recursive_doubling"));
  options.history = take("history", std::size_t{8});
  options.op = reduce_op(take("op", std::string("SUM")));
  options.recoverable = take("recoverable", false);
  if (taken != arguments.size()) {
    throw py::type_error("expected options of a partial allreduce, got " + py::str(arguments).cast<std::string>());
  }
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
