// Memory allocates, copies and reduces data; it never communicates.
//
// The caller's arrays have the *element type*. Partial results, on every rank and on the wire, have the *accumulator
// type*, which may be wider (`elements_of`). Data is widened once on input and narrowed once on output, so that a sum
// over any number of ranks rounds once.
#pragma once

#include <cstddef>
#include <memory>

#include "core/types.h"

namespace pyc {

struct BufferDeleter {
  class ReductionMemory* memory = nullptr;
  void operator()(std::byte* data) const;
};
using BufferPtr = std::unique_ptr<std::byte[], BufferDeleter>;

/// The operations of a reduction, on the host or on a device (device_memory.h). Calls return after the work is done.
class ReductionMemory {
 public:
  virtual ~ReductionMemory() = default;

  /// Uninitialized bytes, aligned for vector loads; at least one byte is always allocated.
  virtual BufferPtr allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) noexcept = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Element-wise operations. `count` is in elements; the ranges of two arguments are equal or disjoint.

  /// into (accumulator) = from (element type), widened.
  virtual void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into = into op from, both in the accumulator type. AVG adds; `store` or `add` divides once.
  virtual void reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) = 0;

  /// into = into + from / divisor, both in the accumulator type (a running total of completed rounds).
  virtual void add(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                   std::size_t divisor) = 0;

  /// into (element type) = from (accumulator) / divisor, narrowed. Integer division rounds toward zero.
  virtual void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                     std::size_t divisor) = 0;

  /// into (accumulator) = the identity of op: 0, 1, all bits, or an extreme value (infinite for floats).
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

  /// One half of an average whose other half is elsewhere: step = (step - data) / 2, then data = data + step. The owner
  /// of the other half subtracts `step` from its values.
  virtual void meet(DataType type, std::byte* data, std::byte* step, std::size_t count) = 0;

  /// data = data + factor * step.
  virtual void add_scaled(DataType type, std::byte* data, const std::byte* step, std::size_t count, double factor) = 0;

  /// Moves two models toward each other until `kept` of their difference is left. Their sum stays the same.
  virtual void mix(DataType type, std::byte* a, std::byte* b, std::size_t count, double kept) = 0;
};

inline void BufferDeleter::operator()(std::byte* data) const { memory->release(data); }

Memory& host_memory();

}  // namespace pyc
