// Where data lives and what is computed on it. Memory allocates, copies and reduces; it never communicates.
//
// Data has two forms. The caller's arrays hold elements of the *element type*. Partial results, on every rank and on
// the wire, hold elements of the *accumulator type*, which may be wider (`elements_of`): data is widened once when
// handed over and narrowed once when a result is taken, so that a sum over any number of ranks rounds once.
#pragma once

#include <cstddef>
#include <memory>

#include "core/types.h"

namespace pyc {

/// Frees what `ReductionMemory::allocate` returned.
struct BufferDeleter {
  class ReductionMemory* memory = nullptr;
  void operator()(std::byte* data) const;
};
using BufferPtr = std::unique_ptr<std::byte[], BufferDeleter>;

/// What a reduction needs: of the host, or of a device (device_memory.h). Work is done when a call returns.
class ReductionMemory {
 public:
  virtual ~ReductionMemory() = default;

  /// `bytes` uninitialised bytes, aligned for vector loads; at least one byte is always allocated.
  virtual BufferPtr allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) noexcept = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Element-wise work. `count` is in elements; the ranges of two arguments are equal or disjoint.

  /// into (accumulator) = from (element type), widened.
  virtual void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into = into op from, both of the accumulator type. AVG sums: the division is done once, by `store` or `add`.
  virtual void reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into = into + from / divisor, both of the accumulator type (a running total of finished rounds).
  virtual void add(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                   std::size_t divisor) = 0;

  /// into (element type) = from (accumulator) / divisor, narrowed. Integers divide towards zero.
  virtual void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                     std::size_t divisor) = 0;

  /// into (accumulator) = the identity of op: 0, 1, the largest or the smallest value (infinities for floats).
  virtual void fill_identity(Elements elements, ReduceOp op, std::byte* into, std::size_t count) = 0;
};

class Memory : public ReductionMemory {
 public:
  /// into (accumulator) = into op from (element type), widened first.
  virtual void accumulate(Elements elements, ReduceOp op, std::byte* into, const std::byte* from,
                          std::size_t count) = 0;

  /// data = data * factor, of float32 or float64 (weighted averages).
  virtual void scale(DataType type, std::byte* data, std::size_t count, double factor) = 0;

  // Between two models, of float32 or float64 (neighbor averaging).

  /// a = b = (a + b) / 2.
  virtual void average(DataType type, std::byte* a, std::byte* b, std::size_t count) = 0;

  /// One half of an average whose other half is elsewhere: step = (step - data) / 2, then data = data + step. Who gave
  /// `step` its values subtracts it from them.
  virtual void meet(DataType type, std::byte* data, std::byte* step, std::size_t count) = 0;

  /// data = data + factor * step.
  virtual void add_scaled(DataType type, std::byte* data, const std::byte* step, std::size_t count, double factor) = 0;

  /// Moves two models towards each other until `kept` of their difference is left; their sum stays.
  virtual void mix(DataType type, std::byte* a, std::byte* b, std::size_t count, double kept) = 0;
};

inline void BufferDeleter::operator()(std::byte* data) const { memory->release(data); }

/// Memory of this process, reachable by load and store.
Memory& host_memory();

}  // namespace pyc
