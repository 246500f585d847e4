// A kind of memory with what works on it: host memory, whose work is done when a call returns, or that of a CUDA
// device, whose work is queued on streams and done later. Who uses this interface need not know which. No call waits
// for work.
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

/// What a device reports of itself: it fails, or has no more memory.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A point in the work of a stream.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the work before the point where it was last recorded is done; true if it never was recorded. Throws what
  /// went wrong on the device.
  virtual bool reached() = 0;
};

using Inputs = std::span<const std::byte* const>;
using Outputs = std::span<std::byte* const>;

/// Work that is done in the order in which it was given. Nothing is known of the order of two streams, unless one waits
/// for an event of the other. Operands stay as they are until an event after the work is reached; two of them are equal
/// or disjoint. `count` is in elements.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Further work waits until the event, as it was last recorded, is reached.
  virtual void wait(Event& event) = 0;
  /// std::invalid_argument if this is a stream of the caller's that takes no work: of another device, destroyed, or
  /// being captured into a graph.
  virtual void record(Event& event) = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  /// Outputs = (inputs[0] op inputs[1] op ...) / divisor, in that order, all of the element type and accumulated in the
  /// accumulator type. A divisor other than 1: only if op is SUM or AVG, and the accumulator is float32, float64, or
  /// that of an average of integers, which are divided towards zero.
  virtual void fold(Elements elements, ReduceOp op, Outputs outputs, Inputs inputs, std::size_t count,
                    std::size_t divisor) = 0;

  /// Outputs = factors[0] * inputs[0] + factors[1] * inputs[1] + ..., in that order, of a float type, accumulated in
  /// float32 or float64. With one input: a scaled copy.
  virtual void weighted_sum(DataType type, Outputs outputs, Inputs inputs, std::span<const double> factors,
                            std::size_t count) = 0;

  /// into (accumulator) = from (element type).
  virtual void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into (element type) = from (accumulator) / divisor.
  virtual void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                     std::size_t divisor) = 0;
};

/// Frees what an executor allocated, or ends a mapping.
struct ExecutorDeleter {
  class Executor* executor = nullptr;
  void (Executor::*free)(std::byte*) noexcept = nullptr;
  void operator()(std::byte* data) const;
};
using ExecutorMemory = std::unique_ptr<std::byte[], ExecutorDeleter>;

/// Names memory of an executor to another one of its kind on the same node.
using SharedHandle = std::array<char, 64>;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string_view kind() const = 0;  ///< "host" or "cuda"

  /// `bytes` uninitialised bytes, aligned for vector loads; at least one is always allocated. Everything that an
  /// executor gives ends before the executor, and memory after the work on it.
  virtual ExecutorMemory allocate(std::size_t bytes) = 0;
  /// As `allocate`, of memory that is `share`d: nothing else becomes visible to others with it.
  virtual ExecutorMemory allocate_shared(std::size_t bytes) { return allocate(bytes); }
  /// What was released from that.
  ExecutorMemory owned(std::byte* data) { return {data, {this, &Executor::release}}; }
  /// Host memory from which copies are fast.
  virtual ExecutorMemory allocate_staging(std::size_t bytes) = 0;

  virtual std::unique_ptr<Stream> new_stream() = 0;
  virtual std::unique_ptr<Event> new_event() = 0;
  /// The caller's own stream, as the CUDA array interface names it: 1: the legacy default stream, 2: that of the
  /// thread, else a handle. It stays the caller's.
  virtual std::unique_ptr<Stream> stream_of_caller(std::uintptr_t handle) = 0;

  /// For another executor's `map`; `data` is the begin of memory of `allocate_shared`.
  virtual SharedHandle share(std::byte* data) = 0;
  /// The memory of another executor, which it must not free before the mapping ends.
  virtual ExecutorMemory map(const SharedHandle& handle) = 0;

 protected:
  virtual void release(std::byte* data) noexcept = 0;
  virtual void release_staging(std::byte* data) noexcept = 0;
  virtual void unmap(std::byte* data) noexcept = 0;

  ExecutorMemory owned_staging(std::byte* data) { return {data, {this, &Executor::release_staging}}; }
  ExecutorMemory mapped(std::byte* data) { return {data, {this, &Executor::unmap}}; }
};

/// Waits until what `stream` was given is done: of work of the library's own, which ends.
inline void finish(Stream& stream, Event& done) {
  stream.record(done);
  while (!done.reached()) std::this_thread::yield();
}
/// The same in destructors: a device that fails does nothing any more.
inline void finish_at_end(Stream& stream, Event& done) noexcept {
  try {
    finish(stream, done);
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch)
  }
}

inline void ExecutorDeleter::operator()(std::byte* data) const { (executor->*free)(data); }

/// Works on the memory of this process.
Executor& host_executor();

}  // namespace pyc
