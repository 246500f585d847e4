// Asynchronous averaging in pairs (AD-PSGD) of models in host memory.
#include <memory>
#include <utility>
#include <vector>

#include "bindings/bound_pairwise.h"
#include "c_api/handles.h"

namespace pyc {
namespace {

class BoundHostPairwise final : public BoundPairwise {
 public:
  using BoundPairwise::BoundPairwise;

  void read(const py::buffer& out) {
    const py::buffer_info memory = checked(out, true, (**this).options().type);
    without_gil([&] { (**this).read(static_cast<std::byte*>(memory.ptr), run_signal_handlers); });
  }
  void apply(const py::buffer& delta) {
    const py::buffer_info memory = checked(delta, false, (**this).options().type);
    without_gil([&] { (**this).apply(static_cast<const std::byte*>(memory.ptr), run_signal_handlers); });
  }
  py::capsule c_handle(Timeout timeout) { return handle_of<PairwiseHandle>(timeout); }
};

}  // namespace

void bind_pairwise_averaging(py::module_& m) {
  using Bound = BoundHostPairwise;
  const py::class_<Bound> type(m, "PairwiseAveraging", py::is_final());
  ClassDefinitions(type)
      .constructor("engine, *, nodes, timeout=None, initial, **options",
                   [](std::shared_ptr<Engine> engine, std::vector<Rank> nodes, Timeout timeout,
                      const py::buffer& initial, const py::kwargs& arguments) {
                     PairwiseOptions options = pairwise_options(arguments);
                     const py::buffer_info memory = initial.request();
                     return std::make_unique<Bound>([&] {
                       return PairwiseAveraging::create(std::move(engine), host_memory(), std::move(options),
                                                        static_cast<const std::byte*>(memory.ptr),
                                                        Nodes(std::move(nodes)), timeout, run_signal_handlers);
                     });
                   })
      .function("check", "engine, **arguments",
                [](Engine& engine, const py::kwargs& arguments) {
                  const PairwiseOptions options = pairwise_options(arguments);
                  without_gil([&] { PairwiseAveraging::check(engine, options); });
                })
      .method<&Bound::read>("read", "out")
      .method<&Bound::apply>("apply", "delta")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None");
  bind_what_needs_no_array<Bound>(type);
}

}  // namespace pyc
