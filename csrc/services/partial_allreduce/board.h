// What the ranks of one node share for one partial allreduce: what each has handed over (board_ranks.h), how far the
// round is and the reduction that they do together (board_round.h), the results (board_records.h) and the buffers of it
// all (board_buffers.h); and what they post in rounds that need none of this (board_posts.h). Everything here lies in
// shared memory; a `Board` is one rank's way to it. The node may be alone, or one of several: then the node's leader
// takes its part of the round to the others. docs/board.md has the protocol.
//
// The mutex guards all of it but the atomics. It is held for a few instructions, and over a copy or a reduction only
// where a direct round becomes the board's, or what it gave is kept: of 8 KiB of all ranks together at most.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/rank_set.h"
#include "core/types.h"
#include "node/event_count.h"
#include "node/robust_mutex.h"
#include "node/shared_memory.h"
#include "services/common/rank_state.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_posts.h"
#include "services/partial_allreduce/board_ranks.h"
#include "services/partial_allreduce/board_records.h"
#include "services/partial_allreduce/board_round.h"
#include "services/partial_allreduce/board_shape.h"
#include "services/partial_allreduce/joint_sum.h"

namespace pyc {

class Board {
 public:
  /// std::length_error if they cannot be counted.
  static std::size_t bytes(const BoardShape& shape);

  /// `local`: the local rank. `first`: constructs what is shared; the others come after.
  Board(const std::shared_ptr<SharedMemory>& memory, const BoardShape& shape, Rank local, bool first);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const BoardShape& shape() const { return shape_; }
  RobustMutex& mutex() { return *mutex_; }
  /// Rings when a round has completed, and when somebody who waits can help.
  EventCount& events() { return *events_; }

  BoardRanks& ranks() { return ranks_; }
  BoardRecords& records() { return records_; }
  BoardRound& round() { return round_; }
  BoardBuffers& buffers() { return buffers_; }
  JointSum& joint_sum() { return joint_sum_; }
  BoardPosts& posts() { return posts_; }

  /// That it has taken so far: pages that were never written take none. On devices all that there is.
  std::size_t memory_bytes() const;

  /// Rounds complete, without direct rounds since the board last took over.
  RoundNumber completed() const { return records_.completed(); }
  /// ... and with them, as far as this rank can see.
  RoundNumber rounds() const { return std::max(completed(), posts_.completed()); }
  /// Every rank of the communicator has closed it.
  bool ended() const { return round_.ended(); }

  // ---- between nodes

  /// The node's leader should look; see `take_attention`.
  void draw_attention() { shared_->attention.store(true, std::memory_order_release); }
  bool take_attention() {
    return shared_->attention.load(std::memory_order_relaxed) &&
           shared_->attention.exchange(false, std::memory_order_acq_rel);
  }

  /// The leader is asked how every rank stands to a round; the answers come in `reports`. Under the mutex.
  struct Inquiry {
    RoundNumber round = kNoRound;
    bool is_new = false;
  };
  Inquiry& inquiry() { return shared_->inquiry; }
  /// By rank of the communicator: how they stand to the round inquired of. Under the mutex.
  Report* reports() { return reports_; }

  // ---- failures

  /// The leader's engine, or this rank's device, cannot go on: everybody's next look throws what it threw. The first
  /// counts.
  void fail(const std::exception_ptr& error);
  /// The device of a rank, of another node too.
  void fail_device(Rank rank, std::string_view text);
  void check_failure() const;
  bool failed() const { return shared_->failed.load(std::memory_order_acquire); }

  struct DeviceFailure {
    Rank rank;
    std::string text;
  };
  /// ... by a device: then messages still find their way, though no data does.
  std::optional<DeviceFailure> device_failure() const;

 private:
  static constexpr std::size_t kMostNamed = 16;
  enum class Failure : std::uint8_t { kTransport, kRank, kDevice };

  // What is written often and what hardly ever is lie on different cache lines.
  struct Shared {  // NOLINT(clang-analyzer-optin.performance.Padding)
    std::atomic<bool> attention{false};
    Inquiry inquiry;
    alignas(64) std::atomic<bool> failed{false};  // why is written before
    std::atomic<bool> is_failing{false};
    Failure kind = Failure::kTransport;
    Rank failed_at = kNoRank;
    char failure[256] = {};
    Rank dead[kMostNamed] = {};  // the first of them
    std::uint32_t dead_count = 0;
  };

  Board(std::shared_ptr<SharedMemory> owner, const BoardShape& shape, Rank local, BoardMemory memory);

  Rank own_rank() const { return shape_.ranks[static_cast<std::size_t>(ranks_.own_local_rank())]; }
  template <class Describe>
  void fail_with(Describe describe);

  const std::shared_ptr<SharedMemory> owner_;
  const BoardShape shape_;
  // In this order they lie in the memory.
  BoardMemory memory_;
  RobustMutex* mutex_;
  EventCount* events_;
  Shared* shared_;
  BoardRanks ranks_;
  BoardRecords records_;
  JointSum joint_sum_;
  BoardRound round_;
  BoardPosts posts_;
  Report* reports_;       // as many as the communicator has ranks; 0 is `kSilent`
  BoardBuffers buffers_;  // last: they take whole pages
};

}  // namespace pyc
