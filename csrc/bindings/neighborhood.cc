// Averaging with neighbors in steps: D-PSGD and SGP.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/c_functions.h"
#include "bindings/calls.h"
#include "bindings/one_thread.h"
#include "bindings/protocol.h"
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

class BoundNeighborhood {
 public:
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

  bool test() {
    const OneThread one(in_use_, neighborhood_->name());
    const GilReleased released;
    return neighborhood_->test();
  }

  py::dict statistics() const {
    py::dict out = common_statistics(*neighborhood_);
    out["steps"] = neighborhood_->steps();
    return out;
  }

  void final(const py::buffer& out, const py::object& timeout) {
    const OneThread one(in_use_, neighborhood_->name());
    const py::buffer_info memory = memory_of(out, true);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    neighborhood_->final(static_cast<std::byte*>(memory.ptr), limit, run_signal_handlers);
  }

  py::capsule c_handle(const py::object& timeout) {
    const NeighborhoodOptions& options = neighborhood_->options();
    if (!handle_) {
      handle_ = std::make_unique<NeighborhoodHandle>(
          pyc_collective::Common{options.name, options.count, options.type, &in_use_, timeout_from(timeout),
                                 interrupt_c_call},
          neighborhood_);
    }
    return capsule_of(handle_.get());
  }

  Neighborhood& operator*() { return *neighborhood_; }

 private:
  py::buffer_info memory_of(const py::buffer& values, bool writable) const {
    return requested(values, writable, neighborhood_->name(), neighborhood_->options().count);
  }

  std::shared_ptr<Neighborhood> neighborhood_;
  std::atomic_flag in_use_;
  std::unique_ptr<pyc_collective> handle_;  // of calls from C
};

}  // namespace

void bind_neighborhood(py::module_& m) {
  using Bound = BoundNeighborhood;
  const py::class_<Bound> neighborhood(m, "Neighborhood", py::is_final());
  ClassDefinitions(neighborhood)
      .constructor("engine, *, push_sum, count, dtype_name, overlap=0, steps, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, bool push_sum, std::size_t count, const std::string& dtype_name,
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
                   })
      .method<&Bound::start>("start", "values")
      .method<&Bound::wait>("wait", "out, *, timeout=None")
      .method<&Bound::final>("final", "out, *, timeout=None")
      .method<&Bound::test>("test", "")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None")
      .method<&Bound::statistics>("statistics", "")
      .property("steps", [](Bound& b) { return (*b).steps(); })
      .property("weight", [](Bound& b) { return (*b).weight(); });
  define_protocol<Bound>(Definitions(neighborhood));
  define_leave<Bound>(Definitions(neighborhood));
}

}  // namespace pyc
