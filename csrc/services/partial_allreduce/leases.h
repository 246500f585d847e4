// Buffers of a board in which the application looks at results.
//
// Whoever lets go of such a result, in whichever thread, only says so: the buffer is given back when this rank has the
// board's mutex anyway.
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

  /// Else the application holds as many as the board can spare, and gets a copy instead.
  bool may_lease() const { return out_[0] == kNoBuffer || out_[1] == kNoBuffer; }

  /// A view of the buffer, with the caller's reference to it. `self`: this.
  std::shared_ptr<const std::byte> lease(BufferNumber buffer, std::shared_ptr<Leases> self) {
    const std::size_t i = out_[0] == kNoBuffer ? 0 : 1;
    if (out_[i] != kNoBuffer) throw InternalError("more results are leased than the board can spare");
    out_[i] = buffer;
    const std::byte* const data = board_->buffers().data(buffer);
    return {data, [leases = std::move(self), i](const std::byte*) {
              leases->returned_[i].store(true, std::memory_order_release);
            }};
  }

  /// One that nobody looks at any more, or kNoBuffer. The caller has the board's mutex.
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
