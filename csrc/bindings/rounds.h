// The Python types Round and RoundInfo.
#pragma once

#include <memory>

#include "bindings/bound_allreduce.h"

namespace pyc {

void bind_rounds(py::module_& m);

/// Return new references. `owner`: the Python object that contains `collective`.
PyObject* make_round(PyObject* owner, BoundPartialAllreduce& collective, std::shared_ptr<Call> call);
PyObject* make_round_info(const RoundInfo& info);

/// Defines what does not depend on the device of the arrays. `Bound`: BoundPartialAllreduce, or derived from it.
template <class Bound>
void define_partial_allreduce(Definitions definitions) {
  define_usable<Bound>(definitions);
  definitions.method("start_flush", "", [](Bound& b) { b.start_flush(); })
      .method("flush", "*, timeout=None",
              [](Bound& b, const py::object& timeout) {
                return py::reinterpret_steal<py::object>(make_round_info(b.flush(b.limit_from(timeout.ptr()))));
              })
      .method("leave", "", [](Bound& b) { b.close(); })
      .method("abort", "", [](Bound& b) { return without_gil([&] { return b.abort(); }); })
      .method("statistics", "", [](Bound& b) { return statistics_of(*b); })
      .property("has_contributed", [](Bound& b) { return b.has_contributed(); })
      .property("rounds", [](Bound& b) { return (*b).rounds(); })
      .property("name", [](Bound& b) { return (*b).options().name; })
      .property("in_own_process", [](Bound& b) { return b.in_own_process(); });
}

}  // namespace pyc
