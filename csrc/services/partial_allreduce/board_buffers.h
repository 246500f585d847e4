// The buffers of a board: a fixed number of equal ones, each with a count of those who refer to it. One that nobody
// refers to is free.
//
// All calls but `data` under the board's mutex. Who has a reference reads the buffer without it; a buffer with more
// than one reference is never written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

/// A buffer of the board, by number.
using BufferNumber = std::int32_t;
inline constexpr BufferNumber kNoBuffer = -1;

class BoardBuffers {
 public:
  /// std::length_error if the bytes, or the buffers, cannot be counted.
  BoardBuffers(BoardMemory& memory, const BoardShape& shape);

  // Of the buffers of a node.
  static std::size_t count(const BoardShape& shape);
  static std::size_t stride(const BoardShape& shape);
  /// Of each of so many arenas: one, or on devices one of each rank.
  static std::size_t per_arena(const BoardShape& shape, std::size_t arenas) { return count(shape) / arenas; }

  /// A free one, with one reference.
  BufferNumber take();
  void retain(BufferNumber buffer) { ++references_[buffer]; }
  /// Does nothing for kNoBuffer, and leaves that there.
  void release(BufferNumber& buffer);
  std::uint32_t references(BufferNumber buffer) const { return references_[buffer]; }

  /// That were taken at once, at most: only these were ever written. Without the mutex.
  std::size_t most_taken() const { return stack_->most_taken.load(std::memory_order_relaxed); }

  std::byte* data(BufferNumber buffer) const { return data_ + static_cast<std::size_t>(buffer) * stride_; }

 private:
  struct Stack {
    std::uint32_t free = 0;
    std::atomic<std::uint32_t> most_taken{0};
  };

  Stack* stack_;
  std::uint32_t* references_;
  BufferNumber* free_;  // the first `stack_->free` of it
  std::size_t stride_;
  std::uint32_t count_;
  std::byte* data_;
};

}  // namespace pyc
