// What the neighbors of one node share: each rank's newest values, which the others read where they lie.
//
// A rank has two or three buffers; its values of step s are in buffer s modulo their number. It says how many steps it
// has begun, of how many it has read what its neighbors showed, and, once it leaves, after how many. All three numbers
// only grow, so "at least this far" is all that is ever asked of another's. A buffer is written again when its readers
// have read it, which its owner waits for before it ends the step before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/types.h"

namespace pyc {

class NeighborhoodBoard {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  /// Bytes for each rank of the node.
  static std::size_t bytes(std::size_t buffer_bytes, std::uint64_t buffers);

  /// Of the rank at `local`. `memory`: of all ranks, zeroed, aligned to a page.
  NeighborhoodBoard(std::shared_ptr<std::byte> memory, std::size_t local, std::size_t buffer_bytes,
                    std::uint64_t buffers);

  /// Where the values of a step lie, or are to be put, of the rank at `local`.
  std::byte* values(std::size_t local, std::uint64_t step) const {
    return start_of(local) + kPage + (step % buffers_) * stride_;
  }
  std::byte* own_values(std::uint64_t step) const { return values(local_, step); }

  // What a rank has said.
  std::uint64_t begun(std::size_t local) const { return at(local).begun.load(); }
  std::uint64_t read(std::size_t local) const { return at(local).read.load(); }
  bool has_left(std::size_t local, std::uint64_t step) const { return at(local).left.load() <= step; }

  // What this one says: so many steps. Whom it may concern is notified after.
  void begin(std::uint64_t steps) { at(local_).begun.store(steps); }
  void has_read(std::uint64_t steps) { at(local_).read.store(steps); }
  void leave(std::uint64_t steps) { at(local_).left.store(steps); }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kLine = 64;

  struct Head {
    alignas(kLine) std::atomic<std::uint64_t> begun{0};
    std::atomic<std::uint64_t> left{kNever};
    alignas(kLine) std::atomic<std::uint64_t> read{0};
  };

  static std::size_t stride_of(std::size_t buffer_bytes) { return (buffer_bytes + kLine - 1) / kLine * kLine; }
  std::byte* start_of(std::size_t local) const { return memory_.get() + local * rank_bytes_; }
  Head& at(std::size_t local) const { return *reinterpret_cast<Head*>(start_of(local)); }

  std::shared_ptr<std::byte> memory_;
  const std::size_t local_;
  const std::uint64_t buffers_;
  const std::size_t stride_;
  const std::size_t rank_bytes_;
};

}  // namespace pyc
