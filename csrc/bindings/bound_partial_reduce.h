// Bindings of P-Reduce that arrays on the host and on devices share.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/one_thread.h"
#include "groups/generator.h"
#include "services/partial_reduce/partial_reduce.h"

namespace pyc {

/// Calls `action` without the GIL. If it fails while the engine still uses `values`, at `data`, they are never freed.
template <class Collective, class Action>
void run_on(const py::object& values, const std::byte* data, Collective& collective, Action action) {
  bool in_use = false;
  std::exception_ptr error;
  {
    const GilReleased released;
    try {
      action();
    } catch (...) {
      error = std::current_exception();
      in_use = collective.uses(data);
    }
  }
  if (in_use) values.inc_ref();
  if (error) std::rethrow_exception(error);
}

PartialReduceOptions options_from(std::size_t count, const std::string& dtype_name, const std::string& op,
                                  bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
                                  std::vector<std::string> algorithms, std::string name);

py::dict statistics_of(const PartialReduce& collective);

inline py::tuple to_python(const GroupInfo& info) {
  return py::make_tuple(py::tuple(py::cast(info.group)), info.sequence, info.waited, info.conflicts);
}

}  // namespace pyc
