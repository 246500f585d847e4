// Bindings of pairwise averaging that do not depend on the device of the arrays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
#include "services/neighbor_averaging/pairwise_averaging.h"

namespace pyc {

/// From keyword arguments, which are too many to pass by position.
PairwiseOptions pairwise_options(const py::dict& arguments);

class BoundPairwise : public BoundCollective<PairwiseAveraging> {
 public:
  using BoundCollective::BoundCollective;

  void read_kept(const py::buffer& out);
  void replace_held(const py::buffer& before, const py::buffer& values);
  py::dict statistics();

 protected:
  /// The host memory of a model's elements of that type.
  py::buffer_info checked(const py::buffer& buffer, bool writable, DataType type) const;
};

template <class Bound>
void bind_what_needs_no_array(py::handle type) {
  Definitions(type)
      .method("read_kept", "out", [](Bound& b, const py::buffer& out) { b.read_kept(out); })
      .method("replace_held", "before, values",
              [](Bound& b, const py::buffer& before, const py::buffer& values) { b.replace_held(before, values); })
      .method("pause", "*, timeout=None",
              [](Bound& b, Timeout timeout) { without_gil([&] { (*b).pause(timeout, run_signal_handlers); }); })
      .method("resume", "", [](Bound& b) { without_gil([&] { (*b).resume(); }); })
      .method("set_told", "dead", [](Bound& b, const std::vector<Rank>& dead) { (*b).set_told(dead); })
      .method("statistics", "", [](Bound& b) { return b.statistics(); })
      .property("held_dtype_name", [](Bound& b) { return std::string(name_of((*b).held_type())); });
  define_protocol<Bound>(Definitions(type));
}

}  // namespace pyc
