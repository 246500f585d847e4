// Averages with neighbors, step by step: D-PSGD and SGP.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/one_thread.h"
#include "services/neighbor_averaging/neighborhood.h"

namespace pyc {
namespace {

using PythonNeighbors = std::vector<std::pair<Rank, double>>;
using PythonStep = std::tuple<double, PythonNeighbors, PythonNeighbors>;

std::vector<Neighbor> neighbors_from(const PythonNeighbors& pairs) {
  std::vector<Neighbor> neighbors;
  for (const auto& [rank, weight] : pairs) neighbors.push_back({rank, weight});
  return neighbors;
}

class BoundNeighborhood {
 public:
  /// Making memory that ranks share is collective and takes at most `timeout` seconds.
  BoundNeighborhood(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout, NeighborhoodOptions options) {
    const GilReleased released;
    neighborhood_ =
        Neighborhood::create(std::move(engine), host_memory(), std::move(options), nodes, timeout, run_signal_handlers);
  }

  void start(const py::buffer& values) {
    const OneThread one(in_use_, neighborhood_->name());
    const py::buffer_info memory = memory_of(values, false);
    const GilReleased released;
    neighborhood_->start(static_cast<const std::byte*>(memory.ptr));
  }

  void wait(const py::buffer& out, const py::object& timeout) {
    const OneThread one(in_use_, neighborhood_->name());
    const py::buffer_info memory = memory_of(out, true);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    neighborhood_->wait(static_cast<std::byte*>(memory.ptr), limit, run_signal_handlers);
  }

  void final(const py::buffer& out, const py::object& timeout) {
    const OneThread one(in_use_, neighborhood_->name());
    const py::buffer_info memory = memory_of(out, true);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    neighborhood_->final(static_cast<std::byte*>(memory.ptr), limit, run_signal_handlers);
  }

  Neighborhood& operator*() { return *neighborhood_; }

 private:
  py::buffer_info memory_of(const py::buffer& values, bool writable) const {
    return requested(values, writable, neighborhood_->name(), neighborhood_->options().count);
  }

  std::shared_ptr<Neighborhood> neighborhood_;
  std::atomic_flag in_use_;
};

}  // namespace

void bind_neighborhood(py::module_& m) {
  using Bound = BoundNeighborhood;
  py::class_<Bound>(m, "Neighborhood", py::is_final())
      .def(py::init([](std::shared_ptr<Engine> engine, bool push_sum, std::size_t count, const std::string& dtype_name,
                       std::uint64_t overlap, const std::vector<PythonStep>& steps, std::vector<Rank> nodes,
                       const py::object& timeout, std::string name) {
             NeighborhoodOptions options{
                 .name = std::move(name),
                 .kind = push_sum ? NeighborhoodKind::kPushSum : NeighborhoodKind::kAverage,
                 .count = count,
                 .type = data_type(dtype_name),
                 .overlap = overlap,
                 .steps = {},
             };
             for (const auto& [own, in, out] : steps) {
               options.steps.push_back({own, neighbors_from(in), neighbors_from(out)});
             }
             return std::make_unique<Bound>(std::move(engine), Nodes(std::move(nodes)), timeout_from(timeout),
                                            std::move(options));
           }),
           py::arg("engine"), py::kw_only(), py::arg("push_sum"), py::arg("count"), py::arg("dtype_name"),
           py::arg("overlap") = 0, py::arg("steps"), py::arg("nodes"), py::arg("timeout") = py::none(), py::arg("name"))
      .def("start", &Bound::start, py::arg("values"))
      .def("wait", &Bound::wait, py::arg("out"), py::kw_only(), py::arg("timeout") = py::none())
      .def("final", &Bound::final, py::arg("out"), py::kw_only(), py::arg("timeout") = py::none())
      .def(
          "close", [](Bound& b) { (*b).close(); }, py::call_guard<GilReleased>())
      .def_property_readonly("closed", [](Bound& b) { return (*b).closed(); })
      .def_property_readonly("steps", [](Bound& b) { return (*b).steps(); })
      .def_property_readonly("weight", [](Bound& b) { return (*b).weight(); });
}

}  // namespace pyc
