// The partial allreduce on CUDA devices. Addresses and streams are integers, which Python has checked.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound_allreduce.h"
#include "bindings/calls.h"
#include "bindings/devices.h"
#include "bindings/poll_until.h"
#include "bindings/rounds.h"
#include "services/common/device_caller.h"

namespace pyc {
namespace {

class BoundDeviceAllreduce final : public BoundPartialAllreduce {
 public:
  using Holder = std::unique_ptr<BoundDeviceAllreduce, DeletedWithoutGil<BoundDeviceAllreduce>>;

  static Holder make(const std::shared_ptr<Engine>& engine, int ordinal, const Nodes& nodes, Seconds timeout,
                     const PartialAllreduceOptions& options) {
    const std::size_t bytes = options.count * size_of(options.type);
    std::shared_ptr<Executor> executor;
    std::unique_ptr<DeviceCaller> caller;
    ExecutorMemory shown;
    const auto open = [&] {
      executor = executor_in_use(ordinal);
      caller = std::make_unique<DeviceCaller>(*executor, bytes);
      shown = executor->allocate(bytes);
      return executor;
    };
    auto made = PartialAllreduce::create(engine, host_memory(), options, nodes, timeout, run_signal_handlers, open);
    return Holder(
        new BoundDeviceAllreduce(engine, std::move(made), std::move(executor), std::move(shown), std::move(caller)));
  }

  ~BoundDeviceAllreduce() {
    if (!caller_->finish()) static_cast<void>(shown_.release());
  }
  BoundDeviceAllreduce(const BoundDeviceAllreduce&) = delete;
  BoundDeviceAllreduce& operator=(const BoundDeviceAllreduce&) = delete;

  /// Like pyc::device_of. A failing device fails the collective.
  std::optional<int> device_of(std::uintptr_t data) {
    (**this).check_failure();
    return (**this).on_device([&] { return pyc::device_of(data); });
  }

  /// Earlier work of `streams` makes the values.
  std::shared_ptr<Call> contribute(std::uintptr_t data, const std::vector<std::uintptr_t>& streams) {
    (**this).check_failure();
    std::vector<std::unique_ptr<Stream>> producers;
    (**this).on_device([&] {
      for (const std::uintptr_t stream : streams) producers.push_back(executor_->stream_of_caller(stream));
    });
    return contribute_when_made(memory_at(data), producers);
  }

  /// Copies the result to `out`, in the order of `stream`. Without a stream, the copy is complete on return.
  void give(std::uintptr_t out, std::optional<std::uintptr_t> stream) {
    with_result([&](std::shared_ptr<const std::byte> result) {
      (**this).check_failure();
      (**this).on_device([&] {
        poll_until(engine(), [&] { return caller_->is_given(); });
        const std::unique_ptr<Stream> consumer = stream ? executor_->stream_of_caller(*stream) : nullptr;
        caller_->give(std::move(result), memory_at(out), consumer.get());
        if (!consumer) poll_until(engine(), [&] { return caller_->is_given(); });
      });
    });
  }

  /// The address of the result that the application reads.
  std::uintptr_t shown() const { return reinterpret_cast<std::uintptr_t>(shown_.get()); }

  void fetch(py::array into) {
    if (static_cast<std::size_t>(into.nbytes()) != bytes()) throw InternalError("a result of another size");
    give(reinterpret_cast<std::uintptr_t>(into.mutable_data()), std::nullopt);
  }

 private:
  BoundDeviceAllreduce(std::shared_ptr<Engine> engine, std::shared_ptr<PartialAllreduce> made,
                       std::shared_ptr<Executor> executor, ExecutorMemory shown, std::unique_ptr<DeviceCaller> caller)
      : BoundPartialAllreduce(std::move(engine), std::move(made)),
        executor_(std::move(executor)),
        shown_(std::move(shown)),
        caller_(std::move(caller)) {}

  std::shared_ptr<Executor> executor_;
  ExecutorMemory shown_;
  std::unique_ptr<DeviceCaller> caller_;  // destroyed first, because it may hold a result
};

}  // namespace

void bind_device_allreduce(py::module_& m) {
  using Bound = BoundDeviceAllreduce;
  const py::class_<Bound, Bound::Holder> type(m, "DevicePartialAllreduce", py::is_final());
  ClassDefinitions(type)
      .constructor("engine, *, device, nodes, timeout=None, default_timeout=None, count, dtype_name, piece_bytes=" +
                       std::to_string(kPieceBytes) + ", name='', **policy",
                   [](const std::shared_ptr<Engine>& engine, int device, std::vector<Rank> nodes, Timeout timeout,
                      const py::object& default_timeout, std::size_t count, const std::string& dtype_name,
                      std::size_t piece_bytes, std::string name, const py::kwargs& policy) {
                     PartialAllreduceOptions options = options_from(policy);
                     options.piece_bytes = piece_bytes;
                     options.type = data_type(dtype_name);
                     options.count = count;
                     options.name = std::move(name);
                     Bound::Holder bound = without_gil(
                         [&] { return Bound::make(engine, device, Nodes(std::move(nodes)), timeout, options); });
                     bound->set_default_timeout(default_timeout);
                     return bound;
                   })
      .method("contribute", "data, streams",
              [](const py::object& self, std::uintptr_t data, const std::vector<std::uintptr_t>& streams) {
                auto& b = self.cast<Bound&>();
                return py::reinterpret_steal<py::object>(make_round(self.ptr(), b, b.contribute(data, streams)));
              })
      .method("device_of", "data", kWithoutGil<&Bound::device_of>)
      .method<&Bound::give>("give", "out, stream")
      .property<&Bound::shown>("shown")
      .method<&Bound::fetch>("fetch", "into");
  define_partial_allreduce<Bound>(Definitions(type));
}

}  // namespace pyc
