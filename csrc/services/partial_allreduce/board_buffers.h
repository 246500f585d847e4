// The buffers of a board: a fixed number of equal size, with reference counts. A buffer without references is free.
//
// All calls except `data` and `most_taken` need the board's mutex. A rank with a reference reads the buffer without the
// mutex. A buffer with more than one reference is never written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

using BufferNumber = std::int32_t;
inline constexpr BufferNumber kNoBuffer = -1;

class BoardBuffers {
 public:
  /// Throws std::length_error if the number of bytes or buffers overflows.
  BoardBuffers(BoardMemory& memory, const BoardShape& shape);

  static std::size_t count(const BoardShape& shape);
  static std::size_t stride(const BoardShape& shape);
  /// Buffers per arena. There is one arena; on devices, one per rank.
  static std::size_t per_arena(const BoardShape& shape, std::size_t arenas) { return count(shape) / arenas; }

  BufferNumber take();
  void retain(BufferNumber buffer) { ++references_[buffer]; }
  /// Drops a reference and sets `buffer` to kNoBuffer. Does nothing for kNoBuffer.
  void release(BufferNumber& buffer);
  std::uint32_t references(BufferNumber buffer) const { return references_[buffer]; }

  /// The largest number of buffers taken at once. The other buffers were never written. Needs no mutex.
  std::size_t most_taken() const { return stack_->most_taken.load(std::memory_order_relaxed); }

  std::byte* data(BufferNumber buffer) const { return data_ + static_cast<std::size_t>(buffer) * stride_; }

 private:
  struct Stack {
    std::uint32_t free = 0;
    std::atomic<std::uint32_t> most_taken{0};
  };

  Stack* stack_;
  std::uint32_t* references_;
  BufferNumber* free_;  // the first `stack_->free` entries are valid
  std::size_t stride_;
  std::uint32_t count_;
  std::byte* data_;
};

}  // namespace pyc
