// The shared memory in which the ranks of one node execute the rounds of one partial allreduce: the slots of the ranks
// (board_ranks.h), the current round and its reduction (board_round.h), the completed rounds (board_records.h), the
// buffers (board_buffers.h), and the posts of direct rounds (board_posts.h). A `Board` is one rank's view of it. If
// there are other nodes, the node's leader exchanges data with them. docs/board.md describes the protocol.
//
// The mutex guards everything except the atomics. It is held for a few instructions. It is held during a copy or a
// reduction only to take over a direct round or to keep its result: at most 8 KiB for all ranks together.
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
#include "node/shared_memory.h"
#include "services/common/rank_state.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_mutex.h"
#include "services/partial_allreduce/board_posts.h"
#include "services/partial_allreduce/board_ranks.h"
#include "services/partial_allreduce/board_records.h"
#include "services/partial_allreduce/board_round.h"
#include "services/partial_allreduce/board_shape.h"
#include "services/partial_allreduce/joint_sum.h"

namespace pyc {

class Board {
 public:
  /// Throws std::length_error if the size overflows.
  static std::size_t bytes(const BoardShape& shape);

  /// `local` is this rank's local rank. `first`: constructs the shared state, before the other ranks join.
  Board(const std::shared_ptr<SharedMemory>& memory, const BoardShape& shape, Rank local, bool first);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const BoardShape& shape() const { return shape_; }
  BoardMutex& mutex() { return *mutex_; }
  /// Rings when a round completes, and when a waiting rank can help.
  EventCount& events() { return *events_; }

  BoardRanks& ranks() { return ranks_; }
  BoardRecords& records() { return records_; }
  BoardRound& round() { return round_; }
  BoardBuffers& buffers() { return buffers_; }
  JointSum& joint_sum() { return joint_sum_; }
  BoardPosts& posts() { return posts_; }

  /// Memory in use, in bytes: buffers that were never written do not count. On devices, only the host memory.
  std::size_t memory_bytes() const;

  /// Number of completed rounds, without direct rounds since the last takeover.
  RoundNumber completed() const { return records_.completed(); }
  /// Number of completed rounds including direct rounds, as far as this rank can see.
  RoundNumber rounds() const { return std::max(completed(), posts_.completed()); }
  bool ended() const { return round_.ended(); }

  // ---- between nodes

  /// Asks the node's leader to look at the board; see `take_attention`.
  void draw_attention() { shared_->attention.store(true, std::memory_order_release); }
  bool take_attention() {
    return shared_->attention.load(std::memory_order_relaxed) &&
           shared_->attention.exchange(false, std::memory_order_acq_rel);
  }

  /// A request to the leader: collect the reports of all ranks on a round in `reports`. Under the mutex.
  struct Inquiry {
    RoundNumber round = kNoRound;
    bool is_new = false;
  };
  Inquiry& inquiry() { return shared_->inquiry; }
  /// By rank of the communicator. Under the mutex.
  Report* reports() { return reports_; }

  // ---- failures

  /// Records a failure of the leader's engine or of this rank's device, for all ranks to throw. The first one counts.
  void fail(const std::exception_ptr& error);
  /// Records a failure of the device of `rank`, which may be on another node.
  void fail_device(Rank rank, std::string_view text);
  void check_failure() const {
    if (failed()) throw_failure();
  }
  bool failed() const { return shared_->failed.load(std::memory_order_acquire); }

  struct DeviceFailure {
    Rank rank;
    std::string text;
  };
  /// The failure, if a device caused it. Messages between nodes still flow in that case, without data.
  std::optional<DeviceFailure> device_failure() const;

 private:
  [[noreturn]] void throw_failure() const;

  static constexpr std::size_t kMostNamed = 16;
  enum class Failure : std::uint8_t { kTransport, kRank, kDevice };

  // Fields that are written often and fields that are written rarely lie on different cache lines.
  struct Shared {  // NOLINT(clang-analyzer-optin.performance.Padding)
    std::atomic<bool> attention{false};
    Inquiry inquiry;
    alignas(64) std::atomic<bool> failed{false};  // set after the fields that describe the failure
    std::atomic<bool> is_failing{false};
    Failure kind = Failure::kTransport;
    Rank failed_at = kNoRank;
    char failure[256] = {};
    Rank dead[kMostNamed] = {};
    std::uint32_t dead_count = 0;
  };

  Board(std::shared_ptr<SharedMemory> owner, const BoardShape& shape, Rank local, BoardMemory memory);

  Rank own_rank() const { return shape_.ranks[static_cast<std::size_t>(ranks_.own_local_rank())]; }
  template <class Describe>
  void fail_with(Describe describe);

  const std::shared_ptr<SharedMemory> owner_;
  const BoardShape shape_;
  // The order of the members is their order in the shared memory.
  BoardMemory memory_;
  BoardMutex* mutex_;
  EventCount* events_;
  Shared* shared_;
  BoardRanks ranks_;
  BoardRecords records_;
  JointSum joint_sum_;
  BoardRound round_;
  BoardPosts posts_;
  Report* reports_;       // by rank of the communicator; zeroed memory is `kSilent`
  BoardBuffers buffers_;  // last: takes whole pages
};

}  // namespace pyc
