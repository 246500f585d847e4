// The newest values of each rank of a node, in memory from which its neighbors read them in place.
//
// A rank has two or three buffers, and values of step s are in buffer s modulo their number. It publishes how many
// steps it has begun, of how many it has read its neighbors' values, and after how many it leaves. These numbers only
// grow, so readers only test for "at least". A rank ends a step only when the buffer of the next step has been read by
// its readers.
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

  static std::size_t bytes(std::size_t buffer_bytes, std::uint64_t buffers);

  /// For the rank at `local`. `memory`: of all ranks, zeroed, page-aligned.
  NeighborhoodBoard(std::shared_ptr<std::byte> memory, std::size_t local, std::size_t buffer_bytes,
                    std::uint64_t buffers);

  std::byte* values(std::size_t local, std::uint64_t step) const {
    return start_of(local) + kPage + (step % buffers_) * stride_;
  }
  std::byte* own_values(std::uint64_t step) const { return values(local_, step); }

  // Published by the rank at `local`.
  std::uint64_t begun(std::size_t local) const { return at(local).begun.load(); }
  std::uint64_t read(std::size_t local) const { return at(local).read.load(); }
  bool has_left(std::size_t local, std::uint64_t step) const { return at(local).left.load() <= step; }

  // Publish a number of steps of this rank. Callers then notify the ranks that wait for it.
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
