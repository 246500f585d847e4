// What the bindings of pairwise averaging have in common, wherever the application's arrays are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "services/neighbor_averaging/pairwise_averaging.h"

namespace pyc {

/// From keyword arguments: there are too many to tell them apart by position.
PairwiseOptions pairwise_options(const py::dict& arguments);

class BoundPairwise {
 public:
  explicit BoundPairwise(std::shared_ptr<PairwiseAveraging> made);

  void read_kept(const py::buffer& out);
  void replace_held(const py::buffer& before, const py::buffer& values);
  void pause(const py::object& timeout);
  py::dict statistics();

  PairwiseAveraging& collective() { return *collective_; }

 protected:
  /// Memory of the host for a model's elements, of that type.
  py::buffer_info checked(const py::buffer& buffer, bool writable, DataType type) const;

 private:
  std::shared_ptr<PairwiseAveraging> collective_;
};

template <class Bound, class... Options>
void bind_what_needs_no_array(py::class_<Bound, Options...>& type) {
  type.def("read_kept", &Bound::read_kept, py::arg("out"))
      .def("replace_held", &Bound::replace_held, py::arg("before"), py::arg("values"))
      .def("pause", &Bound::pause, py::kw_only(), py::arg("timeout") = py::none())
      .def(
          "resume", [](Bound& b) { b.collective().resume(); }, py::call_guard<GilReleased>())
      .def(
          "set_told", [](Bound& b, const std::vector<Rank>& dead) { b.collective().set_told(dead); }, py::arg("dead"))
      .def(
          "close", [](Bound& b) { b.collective().close(); }, py::call_guard<GilReleased>())
      .def("statistics", &Bound::statistics)
      .def_property_readonly("held_dtype_name",
                             [](Bound& b) { return std::string(name_of(b.collective().held_type())); })
      .def_property_readonly("closed", [](Bound& b) { return b.collective().closed(); });
}

}  // namespace pyc
