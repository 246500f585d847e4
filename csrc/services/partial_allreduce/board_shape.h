// What all ranks of a node agree on about their board before they make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "memory/memory.h"

namespace pyc {

inline constexpr std::size_t kSegmentBytes = std::size_t{64} << 10U;  // what a rank reduces at a time
inline constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;     // ... of that: stays in the first-level cache
inline constexpr std::size_t kLeastPiece = std::size_t{8} << 10U;     // of a sum that ranks join: a power of two
inline constexpr std::size_t kPostedBytes = std::size_t{8} << 10U;    // of all ranks, which each of them reduces

/// Between nodes: runs that have completed, while the next one runs, and whose sends still read their buffers. Each run
/// in flight needs a buffer of the board, so the board counts on it.
inline constexpr std::size_t kMostDraining = 2;
inline constexpr std::size_t kRunsInFlight = kMostDraining + 1;

struct BoardShape {
  std::vector<Rank> ranks;  // of this node, ascending; a *local rank* is an index into it
  Rank size = 0;            // of the communicator
  std::size_t count = 0;    // elements
  Elements elements;        // of a contribution and of what is computed with
  ReduceOp op = ReduceOp::kSum;
  std::size_t records = 1;                     // completed rounds that are kept, the newest ones
  bool keeps_totals = false;                   // ... and of older ones the sum, for each rank
  std::optional<std::uint64_t> max_staleness;  // rounds in a row that a rank may lack data for
  bool track_members = true;
  std::size_t segment_bytes = kSegmentBytes;
  std::size_t block_bytes = kBlockBytes;
  std::size_t piece_bytes = 0;  // of a sum that ranks reduce their own arrays into; 0: they do not (joint_sum.h)
  bool posts = false;           // rounds may be direct: see board_posts.h
  bool on_device = false;       // the buffers are: see device_buffers.h

  std::size_t local_ranks() const { return ranks.size(); }
  bool is_alone() const { return ranks.size() == static_cast<std::size_t>(size); }
  std::size_t buffer_bytes() const { return count * size_of(elements.accumulator); }
  /// Words of a bitmap of ranks of the communicator; 0 if contributors are not tracked.
  std::size_t member_words() const { return track_members ? (static_cast<std::size_t>(size) + 63) / 64 : 0; }
};

}  // namespace pyc
