// Averaging with neighbors in steps: D-PSGD and SGP.
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
#include "c_api/handles.h"
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

class BoundNeighborhood : public BoundCollective<Neighborhood> {
 public:
  using BoundCollective::BoundCollective;

  void start(const py::buffer& values) {
    const py::buffer_info memory = memory_of(values, false);
    exclusively([&](Neighborhood& n) { n.start(static_cast<const std::byte*>(memory.ptr)); });
  }

  /// `wait` or `final`.
  template <auto Call>
  void receive(const py::buffer& out, Timeout timeout) {
    const py::buffer_info memory = memory_of(out, true);
    exclusively([&](Neighborhood& n) { (n.*Call)(static_cast<std::byte*>(memory.ptr), timeout, run_signal_handlers); });
  }

  bool test() {
    return exclusively([](Neighborhood& n) { return n.test(); });
  }

  py::dict all_statistics() const {
    py::dict out = statistics();
    out["steps"] = (**this).steps();
    return out;
  }

  py::capsule c_handle(Timeout timeout) { return handle_of<NeighborhoodHandle>(timeout); }
};

}  // namespace

void bind_neighborhood(py::module_& m) {
  using Bound = BoundNeighborhood;
  const py::class_<Bound> neighborhood(m, "Neighborhood", py::is_final());
  ClassDefinitions(neighborhood)
      .constructor("engine, *, push_sum, count, dtype_name, overlap=0, steps, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, bool push_sum, std::size_t count, const std::string& dtype_name,
                      std::uint64_t overlap, const std::vector<PythonStep>& steps, std::vector<Rank> nodes,
                      Timeout timeout, std::string name) {
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
                     return std::make_unique<Bound>([&] {
                       return Neighborhood::create(std::move(engine), host_memory(), std::move(options),
                                                   Nodes(std::move(nodes)), timeout, run_signal_handlers);
                     });
                   })
      .method<&Bound::start>("start", "values")
      .method<&Bound::receive<&Neighborhood::wait>>("wait", "out, *, timeout=None")
      .method<&Bound::receive<&Neighborhood::final>>("final", "out, *, timeout=None")
      .method<&Bound::test>("test", "")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None")
      .method<&Bound::all_statistics>("statistics", "")
      .property("steps", [](Bound& b) { return (*b).steps(); })
      .property("weight", [](Bound& b) { return (*b).weight(); });
  define_protocol<Bound>(Definitions(neighborhood));
}

}  // namespace pyc
