// Buffers of a board that the application reads as results.
//
// Any thread may release such a result, and only sets a flag. The rank gives the buffer back when it next holds the
// board's mutex.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/error.h"
#include "services/partial_allreduce/board.h"

namespace pyc {

class Leases {
 public:
  explicit Leases(std::shared_ptr<Board> board) : board_(std::move(board)) {}

  /// False if the application holds as many results as the board can spare. It gets a copy then.
  bool may_lease() const { return out_[0] == kNoBuffer || out_[1] == kNoBuffer; }

  /// A view of the buffer, which takes over the caller's reference. `self` is this object.
  std::shared_ptr<const std::byte> lease(BufferNumber buffer, std::shared_ptr<Leases> self) {
    const std::size_t i = out_[0] == kNoBuffer ? 0 : 1;
    if (out_[i] != kNoBuffer) throw InternalError("more results are leased than the board can spare");
    out_[i] = buffer;
    const std::byte* const data = board_->buffers().data(buffer);
    return {data, [leases = std::move(self), i](const std::byte*) {
              leases->returned_[i].store(true, std::memory_order_release);
            }};
  }

  /// A buffer that the application has released, or kNoBuffer. Needs the board's mutex.
  BufferNumber take_back() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      if (out_[i] == kNoBuffer || !returned_[i].load(std::memory_order_acquire)) continue;
      returned_[i].store(false, std::memory_order_relaxed);
      return std::exchange(out_[i], kNoBuffer);
    }
    return kNoBuffer;
  }

 private:
  std::shared_ptr<Board> board_;
  std::array<BufferNumber, 2> out_{kNoBuffer, kNoBuffer};
  std::array<std::atomic<bool>, 2> returned_{};
};

}  // namespace pyc
