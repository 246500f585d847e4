// Asynchronous averaging in pairs (AD-PSGD) of models in host memory.
#include <memory>
#include <utility>
#include <vector>

#include "bindings/bound_pairwise.h"
#include "bindings/c_functions.h"
#include "c_api/handles.h"

namespace pyc {
namespace {

class BoundHostPairwise final : public BoundPairwise {
 public:
  BoundHostPairwise(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout, PairwiseOptions options,
                    const py::buffer& initial)
      : BoundPairwise(make(std::move(engine), nodes, timeout, std::move(options), initial)) {}

  void read(const py::buffer& out) {
    const py::buffer_info memory = checked(out, true, (**this).options().type);
    const GilReleased released;
    (**this).read(static_cast<std::byte*>(memory.ptr), run_signal_handlers);
  }
  void apply(const py::buffer& delta) {
    const py::buffer_info memory = checked(delta, false, (**this).options().type);
    const GilReleased released;
    (**this).apply(static_cast<const std::byte*>(memory.ptr), run_signal_handlers);
  }

  py::capsule c_handle(const py::object& timeout) {
    const PairwiseOptions& options = (**this).options();
    if (!handle_) {
      handle_ =
          std::make_unique<PairwiseHandle>(pyc_collective::Common{options.name, options.count, options.type, nullptr,
                                                                  timeout_from(timeout), interrupt_c_call},
                                           shared());
    }
    return capsule_of(handle_.get());
  }

 private:
  static std::shared_ptr<PairwiseAveraging> make(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout,
                                                 PairwiseOptions options, const py::buffer& initial) {
    const py::buffer_info memory = initial.request();
    const GilReleased released;
    return PairwiseAveraging::create(std::move(engine), host_memory(), std::move(options),
                                     static_cast<const std::byte*>(memory.ptr), nodes, timeout, run_signal_handlers);
  }

  std::unique_ptr<pyc_collective> handle_;  // of calls from C
};

}  // namespace

void bind_pairwise_averaging(py::module_& m) {
  using Bound = BoundHostPairwise;
  const py::class_<Bound> type(m, "PairwiseAveraging", py::is_final());
  ClassDefinitions(type)
      .constructor("engine, *, nodes, timeout=None, initial, **options",
                   [](std::shared_ptr<Engine> engine, std::vector<Rank> nodes, const py::object& timeout,
                      const py::buffer& initial, const py::kwargs& options) {
                     return std::make_unique<Bound>(std::move(engine), Nodes(std::move(nodes)), timeout_from(timeout),
                                                    pairwise_options(options), initial);
                   })
      .function("check", "engine, **arguments",
                [](Engine& engine, const py::kwargs& arguments) {
                  const PairwiseOptions options = pairwise_options(arguments);
                  const GilReleased released;
                  PairwiseAveraging::check(engine, options);
                })
      .method<&Bound::read>("read", "out")
      .method<&Bound::apply>("apply", "delta")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None");
  bind_what_needs_no_array<Bound>(type);
}

}  // namespace pyc
