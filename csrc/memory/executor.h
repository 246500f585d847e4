// Memory of a CUDA device and the work on it, which is queued on streams. No call waits for work. Tests also have an
// executor of host memory (tests/cpp/host_executor.cc), whose work is complete when a call returns.
//
// Elements have the two forms of memory.h: the element type, and the accumulator type of partial results.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "core/types.h"

namespace pyc {

class Stream;

/// An error of a device, such as exhausted memory.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A point in the work of a stream.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the work before its last `record` is complete; true if it was never recorded. Throws errors of the device.
  virtual bool reached() = 0;
};

using Inputs = std::span<const std::byte* const>;
using Outputs = std::span<std::byte* const>;

/// Work that runs in the order of its submission. Two streams have no order, unless one waits for an event of the
/// other. Operands must not change until an event after the work is reached. Two operands are equal or disjoint.
/// `count` is in elements.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Later work waits until the event is reached, as it was last recorded.
  virtual void wait(Event& event) = 0;
  /// Throws std::invalid_argument if this is the caller's stream and takes no work, because it belongs to another
  /// device, is destroyed, or is being captured into a graph.
  virtual void record(Event& event) = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  /// Outputs = (inputs[0] op inputs[1] op ...) / divisor, in that order. All have the element type and are accumulated
  /// in the accumulator type. A divisor other than 1 needs op SUM or AVG and an accumulator of float32, float64, or an
  /// average of integers, which rounds toward zero.
  virtual void fold(Elements elements, ReduceOp op, Outputs outputs, Inputs inputs, std::size_t count,
                    std::size_t divisor) = 0;

  /// Outputs = factors[0] * inputs[0] + factors[1] * inputs[1] + ..., in that order, of a float type, accumulated in
  /// float32 or float64. With one input it is a scaled copy.
  virtual void weighted_sum(DataType type, Outputs outputs, Inputs inputs, std::span<const double> factors,
                            std::size_t count) = 0;

  /// into (accumulator) = from (element type).
  virtual void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into (element type) = from (accumulator) / divisor.
  virtual void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                     std::size_t divisor) = 0;
};

/// Frees memory of an executor, or ends a mapping.
struct ExecutorDeleter {
  class Executor* executor = nullptr;
  void (Executor::*free)(std::byte*) noexcept = nullptr;
  void operator()(std::byte* data) const;
};
using ExecutorMemory = std::unique_ptr<std::byte[], ExecutorDeleter>;

/// Identifies memory of an executor to another executor of the same kind on the same node.
using SharedHandle = std::array<char, 64>;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string_view kind() const = 0;  ///< "host" or "cuda"

  /// Uninitialized bytes, aligned for vector loads; at least one is always allocated. All objects from an executor end
  /// before the executor, and memory after the work on it.
  virtual ExecutorMemory allocate(std::size_t bytes) = 0;
  /// Like `allocate`, for memory to `share`, so that no other memory becomes visible with it.
  virtual ExecutorMemory allocate_shared(std::size_t bytes) { return allocate(bytes); }
  /// Takes ownership again of memory that was released from an ExecutorMemory of `allocate`.
  ExecutorMemory owned(std::byte* data) { return {data, {this, &Executor::release}}; }
  /// Host memory that copies fast to the device.
  virtual ExecutorMemory allocate_staging(std::size_t bytes) = 0;

  virtual std::unique_ptr<Stream> new_stream() = 0;
  virtual std::unique_ptr<Event> new_event() = 0;
  /// The caller's own stream, numbered as in the CUDA array interface: 1 is the legacy default stream, 2 the thread's,
  /// others are handles. The caller keeps ownership.
  virtual std::unique_ptr<Stream> stream_of_caller(std::uintptr_t handle) = 0;

  /// For `map` on another executor. `data` is the start of memory from `allocate_shared`.
  virtual SharedHandle share(std::byte* data) = 0;
  /// Maps the memory of another executor, which must not free it before the mapping ends.
  virtual ExecutorMemory map(const SharedHandle& handle) = 0;

 protected:
  virtual void release(std::byte* data) noexcept = 0;
  virtual void release_staging(std::byte* data) noexcept = 0;
  virtual void unmap(std::byte* data) noexcept = 0;

  ExecutorMemory owned_staging(std::byte* data) { return {data, {this, &Executor::release_staging}}; }
  ExecutorMemory mapped(std::byte* data) { return {data, {this, &Executor::unmap}}; }
};

/// Waits until the earlier work of `stream` is complete. Only for the library's own work, which always ends.
inline void finish(Stream& stream, Event& done) {
  stream.record(done);
  while (!done.reached()) std::this_thread::yield();
}
/// The same for destructors. It ignores errors, because a failed device runs nothing.
inline void finish_at_end(Stream& stream, Event& done) noexcept {
  try {
    finish(stream, done);
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch)
  }
}

inline void ExecutorDeleter::operator()(std::byte* data) const { (executor->*free)(data); }

}  // namespace pyc
