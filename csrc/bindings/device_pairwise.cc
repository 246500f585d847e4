// Asynchronous averaging in pairs (AD-PSGD) on CUDA devices. Addresses and streams are integers, which Python has
// checked.
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bound_pairwise.h"
#include "bindings/devices.h"
#include "bindings/poll_until.h"

namespace pyc {
namespace {

using CallersStreams = std::vector<std::uintptr_t>;

/// A rank's objects on its device for calls of its application.
struct PairwiseDevice {
  std::shared_ptr<Executor> executor;
  CallersEvents events;
  ExecutorMemory shown;  // a model that the application reads
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> done;

  PairwiseDevice(int ordinal, std::size_t bytes)
      : executor(executor_in_use(ordinal)),
        events(*executor),
        shown(executor->allocate(bytes)),
        stream(executor->new_stream()),
        done(executor->new_event()) {}

  /// Returns whether the earlier work of the streams completes within `timeout` seconds.
  bool wait_for(Engine& engine, const CallersStreams& streams, Seconds timeout = -1) {
    return wait_for_streams(engine, *executor, events, streams, timeout);
  }
};

class BoundDevicePairwise final : public BoundPairwise {
 public:
  using Holder = std::unique_ptr<BoundDevicePairwise, DeletedWithoutGil<BoundDevicePairwise>>;

  static Holder make(const std::shared_ptr<Engine>& engine, int ordinal, const Nodes& nodes, Seconds timeout,
                     const PairwiseOptions& options, std::uintptr_t initial, const CallersStreams& streams) {
    std::unique_ptr<PairwiseDevice> device;
    std::exception_ptr interrupted;
    const auto open = [&] {
      device = std::make_unique<PairwiseDevice>(ordinal, options.count * size_of(options.type));
      try {
        if (device->wait_for(*engine, streams, timeout)) return device->executor;
      } catch (const py::error_already_set&) {  // notify the other ranks before it is raised here
        interrupted = std::current_exception();
        throw std::runtime_error("interrupted");
      }
      throw std::runtime_error("the stream on which the model is made has not done its work in time");
    };
    std::shared_ptr<PairwiseAveraging> made;
    try {
      made = PairwiseAveraging::create(engine, host_memory(), options, memory_at(initial), nodes, timeout,
                                       run_signal_handlers, open);
    } catch (...) {
      if (interrupted) std::rethrow_exception(interrupted);
      throw;
    }
    return Holder(new BoundDevicePairwise(engine, std::move(made), std::move(device)));
  }

  /// Like pyc::device_of. A failing device ends this rank's part.
  std::optional<int> device_of(std::uintptr_t data) {
    (**this).check_device();
    return (**this).on_device([&] { return pyc::device_of(data); });
  }

  // Earlier work of `streams` completes before memory is read or written.

  void read(std::uintptr_t out, const CallersStreams& streams) {
    wait_for(streams);
    (**this).read(memory_at(out), run_signal_handlers);
  }
  void apply(std::uintptr_t delta, const CallersStreams& streams) {
    wait_for(streams);
    (**this).apply(memory_at(delta), run_signal_handlers);
  }

  std::uintptr_t shown() const { return reinterpret_cast<std::uintptr_t>(device_->shown.get()); }
  /// Copies a model from the host to `shown`.
  void show(const py::buffer& values, const CallersStreams& streams) {
    const py::buffer_info memory = checked(values, false, (**this).options().type);
    const GilReleased released;
    wait_for(streams);
    copy(static_cast<const std::byte*>(memory.ptr), device_->shown.get());
  }
  void fetch(py::array into) {
    const PairwiseOptions& options = (**this).options();
    if (static_cast<std::size_t>(into.nbytes()) != options.count * size_of(options.type)) {
      throw InternalError("a model of another size");
    }
    auto* const to = static_cast<std::byte*>(into.mutable_data());
    const GilReleased released;
    copy(device_->shown.get(), to);
  }

 private:
  BoundDevicePairwise(std::shared_ptr<Engine> engine, std::shared_ptr<PairwiseAveraging> made,
                      std::unique_ptr<PairwiseDevice> device)
      : BoundPairwise(std::move(made)), engine_(std::move(engine)), device_(std::move(device)) {}

  template <class Call>
  void on_device(Call call) {
    (**this).check_device();
    (**this).on_device(call);
  }

  void wait_for(const CallersStreams& streams) {
    if (streams.empty() || (**this).closed()) return;
    on_device([&] { device_->wait_for(*engine_, streams); });
  }

  /// One thread at a time.
  void copy(const std::byte* from, std::byte* to) {
    poll_until(*engine_, [this] { return turn_.try_lock(); });
    const std::lock_guard lock(turn_, std::adopt_lock);
    on_device([&] {
      device_->stream->copy(to, from, (**this).options().count * size_of((**this).options().type));
      finish(*device_->stream, *device_->done);
    });
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<PairwiseDevice> device_;
  std::mutex turn_;  // of a copy
};

}  // namespace

void bind_device_pairwise(py::module_& m) {
  using Bound = BoundDevicePairwise;
  const py::class_<Bound, Bound::Holder> type(m, "DevicePairwiseAveraging", py::is_final());
  ClassDefinitions(type)
      .constructor("engine, *, device, nodes, timeout=None, initial, streams, **arguments",
                   [](const std::shared_ptr<Engine>& engine, int device, std::vector<Rank> nodes, Timeout timeout,
                      std::uintptr_t initial, const CallersStreams& streams, const py::kwargs& arguments) {
                     const PairwiseOptions options = pairwise_options(arguments);
                     return without_gil([&] {
                       return Bound::make(engine, device, Nodes(std::move(nodes)), timeout, options, initial, streams);
                     });
                   })
      .method("device_of", "data", kWithoutGil<&Bound::device_of>)
      .method("read", "out, streams", kWithoutGil<&Bound::read>)
      .method("apply", "delta, streams", kWithoutGil<&Bound::apply>)
      .property<&Bound::shown>("shown")
      .method<&Bound::show>("show", "values, streams")
      .method<&Bound::fetch>("fetch", "into");
  bind_what_needs_no_array<Bound>(type);
}

}  // namespace pyc
