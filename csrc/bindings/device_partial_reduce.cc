// The partial reduce on CUDA devices. Addresses and streams are integers, which Python has checked.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound_partial_reduce.h"
#include "bindings/calls.h"
#include "bindings/devices.h"
#include "bindings/poll_until.h"
#include "core/error.h"

namespace pyc {
namespace {

/// A rank's objects on its device for calls of its application.
struct PartialReduceDevice {
  std::shared_ptr<Executor> executor;
  std::unique_ptr<CallersEvents> events;
};

class BoundDevicePartialReduce : PartialReduceDevice, public BoundCollective<PartialReduce> {
 public:
  BoundDevicePartialReduce(const std::shared_ptr<Engine>& engine, int ordinal, const Nodes& nodes, Seconds timeout,
                           PartialReduceOptions options)
      : BoundCollective([&] {
          const auto open = [&] {
            executor = executor_in_use(ordinal);
            events = std::make_unique<CallersEvents>(*executor);
            return executor;
          };
          return PartialReduce::create(engine, host_memory(), std::move(options), nodes, timeout, run_signal_handlers,
                                       open);
        }),
        engine_(engine) {}

  /// Like pyc::device_of. A failing device fails the collective.
  std::optional<int> device_of(std::uintptr_t data) {
    return (**this).on_device([&] { return pyc::device_of(data); });
  }

  /// Requests a group after the earlier work of `streams` has completed. The result is complete on return. `owner`
  /// keeps the memory at `data` alive.
  py::tuple average(std::uintptr_t data, const py::object& owner, const std::vector<std::uintptr_t>& streams,
                    std::int64_t step, const std::vector<Rank>& group, Timeout timeout) {
    const OneThread one = alone();
    GroupInfo info;
    run_on(owner, memory_at(data), **this, [&] {
      const Seconds begin = engine_->transport().now();
      (**this).check_failure();
      if (!(**this).closed()) follow(streams, timeout);
      info = (**this).average(memory_at(data), step, group, rest_of(timeout, begin, *engine_), run_signal_handlers);
    });
    return to_python(info);
  }

  void leave(std::optional<std::uintptr_t> data, const std::vector<std::uintptr_t>& streams) {
    const GilReleased released;
    try {
      if (data && !(**this).closed() && !(**this).has_failed()) follow(streams, -1);
    } catch (...) {  // after Ctrl-C or a device error, this rank leaves without values
      (**this).close_with(nullptr);
      throw;
    }
    (**this).close_with(data ? memory_at(*data) : nullptr);
  }

 private:
  /// Waits until the earlier work of the streams has completed.
  void follow(const std::vector<std::uintptr_t>& streams, Seconds limit) {
    const auto wait = [&] { return wait_for_streams(*engine_, *executor, *events, streams, limit); };
    if ((**this).on_device(wait)) return;
    throw StallError("partial reduce '" + (**this).options().name +
                     "': the stream on which the weights are made has not done its work in time; no group was asked "
                     "for, and another call may be made");
  }

  std::shared_ptr<Engine> engine_;
};

}  // namespace

void bind_device_partial_reduce(py::module_& m) {
  using Bound = BoundDevicePartialReduce;
  using Holder = std::unique_ptr<Bound, DeletedWithoutGil<Bound>>;
  const py::class_<Bound, Holder> device_partial_reduce(m, "DevicePartialReduce", py::is_final());
  ClassDefinitions(device_partial_reduce)
      .constructor(
          "engine, *, device, count, dtype_name, op, by_staleness=False, generator=None, coordinator_rank=0, "
          "algorithms, piece_bytes=" +
              std::to_string(kPieceBytes) + ", nodes, timeout=None, name",
          [](const std::shared_ptr<Engine>& engine, int device, std::size_t count, const std::string& dtype_name,
             const std::string& op, bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
             std::vector<std::string> algorithms, std::size_t piece_bytes, std::vector<Rank> nodes, Timeout timeout,
             std::string name) {
            PartialReduceOptions options = options_from(count, dtype_name, op, by_staleness, generator,
                                                        coordinator_rank, std::move(algorithms), std::move(name));
            if (piece_bytes == 0 || piece_bytes % 16 != 0) {
              throw std::invalid_argument("piece_bytes: expected a multiple of 16, got " + std::to_string(piece_bytes));
            }
            options.piece_bytes = piece_bytes;
            return Holder(new Bound(engine, device, Nodes(std::move(nodes)), timeout, std::move(options)));
          })
      .method("device_of", "data", kWithoutGil<&Bound::device_of>)
      .method<&Bound::average>("average", "data, *, owner, streams, step, group=(), timeout=None")
      .method<&Bound::leave>("leave", "data=None, streams=()")
      .method("statistics", "", [](Bound& b) { return statistics_of(b); })
      .property("failed", [](Bound& b) { return without_gil([&] { return (*b).has_failed(); }); });
  define_usable<Bound>(Definitions(device_partial_reduce));
}

}  // namespace pyc
