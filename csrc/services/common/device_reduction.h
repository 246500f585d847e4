// A reduction among devices by a library of their vendor (memory/communicator.h), one at a time, on a stream of its
// own. It is queued and polled; no call waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "memory/executor.h"

namespace pyc {

class DeviceReduction {
 public:
  using Then = std::function<void(Stream&)>;

  explicit DeviceReduction(Executor& executor) : stream_(executor.new_stream()), done_(executor.new_event()) {}
  /// After the end of the communicator: waits for what is under way.
  ~DeviceReduction();
  DeviceReduction(const DeviceReduction&) = delete;
  DeviceReduction& operator=(const DeviceReduction&) = delete;

  /// What is queued here before `start` is done before the reduction.
  Stream& stream() { return *stream_; }
  /// data = the reduction of all members' data, behind it what `then` queues. Throws DeviceError.
  void start(Communicator& communicator, std::byte* data, std::size_t count, DataType type, ReduceOp op, Then then);
  /// Whether all of that is done, or nothing was started. Throws DeviceError, unless it was given up.
  bool finish();
  /// The communicator has ended: what is not queued yet never is.
  void give_up() { communicator_ = nullptr; }

 private:
  enum class Stage : std::uint8_t { kIdle, kQueueing, kRunning };

  bool advance();

  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> done_;
  Stage stage_ = Stage::kIdle;
  Communicator* communicator_ = nullptr;
  Then then_;
};

}  // namespace pyc
