// The partial reduce on CUDA devices. Addresses and streams are integers, which Python has checked.
#include <algorithm>
#include <atomic>
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
#include "bindings/protocol.h"
#include "core/error.h"

namespace pyc {
namespace {

class BoundDevicePartialReduce {
 public:
  BoundDevicePartialReduce(std::shared_ptr<Engine> engine, int ordinal, const Nodes& nodes, Seconds timeout,
                           PartialReduceOptions options)
      : engine_(std::move(engine)) {
    const GilReleased released;
    const auto open = [&] {
      executor_ = executor_in_use(ordinal);
      callers_events_ = std::make_unique<CallersEvents>(*executor_);
      return executor_;
    };
    collective_ =
        PartialReduce::create_on_device(engine_, open, std::move(options), nodes, timeout, run_signal_handlers);
  }

  /// Like pyc::device_of. A failing device fails the collective.
  std::optional<int> device_of(std::uintptr_t data) {
    return collective_->on_device([&] { return pyc::device_of(data); });
  }

  /// Requests a group after the earlier work of `streams` has completed. The result is complete on return. `owner`
  /// keeps the memory at `data` alive.
  py::tuple average(std::uintptr_t data, const py::object& owner, const std::vector<std::uintptr_t>& streams,
                    std::int64_t step, const std::vector<Rank>& group, const py::object& timeout) {
    const OneThread one(in_use_, collective_->options().name);
    const Seconds limit = timeout_from(timeout);
    GroupInfo info;
    run_on(owner, memory_at(data), *collective_, [&] {
      const Seconds begin = engine_->transport().now();
      collective_->check_failure();
      if (!collective_->closed()) follow(streams, limit);
      info = collective_->average(memory_at(data), step, group, rest_of(limit, begin, *engine_), run_signal_handlers);
    });
    return to_python(info);
  }

  void leave(std::optional<std::uintptr_t> data, const std::vector<std::uintptr_t>& streams) {
    const GilReleased released;
    try {
      if (data && !collective_->closed() && !collective_->has_failed()) follow(streams, -1);
    } catch (...) {  // after Ctrl-C or a device error, this rank leaves without values
      collective_->close_with(nullptr);
      throw;
    }
    collective_->close_with(data ? memory_at(*data) : nullptr);
  }

  PartialReduce& operator*() { return *collective_; }

 private:
  /// Waits until the earlier work of the streams has completed.
  void follow(const std::vector<std::uintptr_t>& streams, Seconds limit) {
    const auto wait = [&] { return wait_for_streams(*engine_, *executor_, *callers_events_, streams, limit); };
    if (collective_->on_device(wait)) return;
    throw StallError("partial reduce '" + collective_->options().name +
                     "': the stream on which the weights are made has not done its work in time; no group was asked "
                     "for, and another call may be made");
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Executor> executor_;
  std::unique_ptr<CallersEvents> callers_events_;
  std::shared_ptr<PartialReduce> collective_;
  std::atomic_flag in_use_;
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
          [](std::shared_ptr<Engine> engine, int device, std::size_t count, const std::string& dtype_name,
             const std::string& op, bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
             std::vector<std::string> algorithms, std::size_t piece_bytes, std::vector<Rank> nodes,
             const py::object& timeout, std::string name) {
            PartialReduceOptions options = options_from(count, dtype_name, op, by_staleness, generator,
                                                        coordinator_rank, std::move(algorithms), std::move(name));
            if (piece_bytes == 0 || piece_bytes % 16 != 0) {
              throw std::invalid_argument("piece_bytes: expected a multiple of 16, got " + std::to_string(piece_bytes));
            }
            options.piece_bytes = piece_bytes;
            return Holder(new Bound(std::move(engine), device, Nodes(std::move(nodes)), timeout_from(timeout),
                                    std::move(options)));
          })
      .method("device_of", "data",
              [](Bound& b, std::uintptr_t data) {
                const GilReleased released;
                return b.device_of(data);
              })
      .method<&Bound::average>("average", "data, *, owner, streams, step, group=(), timeout=None")
      .method<&Bound::leave>("leave", "data=None, streams=()")
      .method("statistics", "", [](Bound& b) { return statistics_of(*b); })
      .property("failed", [](Bound& b) {
        const GilReleased released;
        return (*b).has_failed();
      });
  define_protocol<Bound>(Definitions(device_partial_reduce));
}

}  // namespace pyc
