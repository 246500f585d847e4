// Bindings of P-Reduce that arrays on the host and on devices share.
#pragma once

#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "groups/generator.h"
#include "services/partial_reduce/partial_reduce.h"

namespace pyc {

/// Calls `action` without the GIL. If it fails while the engine still uses `values`, at `data`, they are never freed.
template <class Collective, class Action>
void run_on(const py::object& values, const std::byte* data, Collective& collective, Action action) {
  try {
    without_gil(action);
  } catch (...) {
    if (without_gil([&] { return collective.uses(data); })) values.inc_ref();
    throw;
  }
}

PartialReduceOptions options_from(std::size_t count, const std::string& dtype_name, const std::string& op,
                                  bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
                                  std::vector<std::string> algorithms, std::string name);

py::dict statistics_of(const BoundCollective<PartialReduce>& bound);

inline py::tuple to_python(const GroupInfo& info) {
  return py::make_tuple(py::tuple(py::cast(info.group)), info.sequence, info.waited, info.conflicts);
}

}  // namespace pyc
