// The parameters of a board, on which all ranks of a node agree before they create it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "memory/memory.h"

namespace pyc {

inline constexpr std::size_t kSegmentBytes = std::size_t{64} << 10U;  // unit that a rank claims
inline constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;     // reduced at a time; fits in the L1 cache
inline constexpr std::size_t kLeastPiece = std::size_t{8} << 10U;     // of a joint sum (joint_sum.h); a power of two
inline constexpr std::size_t kPostedBytes = std::size_t{8} << 10U;    // of a direct round: data of all ranks, at most

/// Between nodes: completed runs that still send from their buffers. The board has a buffer for each run in flight.
inline constexpr std::size_t kMostDraining = 2;
inline constexpr std::size_t kRunsInFlight = kMostDraining + 1;

struct BoardShape {
  std::vector<Rank> ranks;  // of this node, ascending; a *local rank* is an index into it
  Rank size = 0;            // of the communicator
  std::size_t count = 0;
  Elements elements;  // type of a contribution, and type of the computation
  ReduceOp op = ReduceOp::kSum;
  std::size_t records = 1;                     // the newest completed rounds
  bool keeps_totals = false;                   // keep, for each rank, the sum of older rounds
  std::optional<std::uint64_t> max_staleness;  // consecutive rounds without data of a rank
  bool track_members = true;
  std::size_t segment_bytes = kSegmentBytes;
  std::size_t block_bytes = kBlockBytes;
  std::size_t piece_bytes = 0;  // of a joint sum (joint_sum.h); 0: ranks do not join rounds
  bool posts = false;           // rounds may be direct (board_posts.h)
  bool on_device = false;       // the buffers are on devices (device_buffers.h)
  bool recoverable = false;     // survivors can read the newest round, and their totals, after a death (recovery.h)

  std::size_t local_ranks() const { return ranks.size(); }
  bool is_alone() const { return ranks.size() == static_cast<std::size_t>(size); }
  std::size_t buffer_bytes() const { return count * size_of(elements.accumulator); }
  /// Words of a bitmap of the communicator's ranks; 0 if contributors are not tracked.
  std::size_t member_words() const { return track_members ? (static_cast<std::size_t>(size) + 63) / 64 : 0; }
};

}  // namespace pyc
