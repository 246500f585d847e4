// The current round of a board, and its reduction by the ranks of the node.
//
//   armed     a contribution becomes a deposit in its rank's slot, and may be an arrival
//   started   the round has taken the deposits. It awaits ranks that have lacked data for too long, and takes their
//             data as soon as they bring it. Waiting ranks reduce the data taken so far
//   taken     no rank is awaited: new contributions are for the next round. Ranks reduce the rest. The rank that
//             finishes last completes the round, or hands it to the leader if there are other nodes
//
// Order of calls: `start`, `take_own` by awaited ranks, `work`, `complete`. All calls except `help`, `offers_help`,
// `grace` and `ended` need the board's mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/types.h"
#include "diagnostics/trace.h"
#include "memory/memory.h"
#include "node/event_count.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_mutex.h"
#include "services/partial_allreduce/board_ranks.h"
#include "services/partial_allreduce/board_records.h"
#include "services/partial_allreduce/board_shape.h"
#include "services/partial_allreduce/grace.h"
#include "services/partial_allreduce/joint_sum.h"

namespace pyc {

class BoardRound {
 public:
  enum class Phase : std::uint32_t { kArmed, kStarted, kTaken, kEnded };

  struct Part {
    std::uint32_t contributors = 0;
    std::uint32_t active = 0;
    std::uint32_t left = 0;    // ranks that had left (flush or close) when the round took their part
    std::uint32_t closed = 0;  // how many of these had closed
  };

  struct State {
    Phase phase = Phase::kArmed;
    Rank initiator = kNoRank;
    Rank newest_arrival = kNoRank;  // local rank
    Rank awaited = 0;               // number of ranks that the started round awaits
    Seconds grace_ends = 0;         // 0 without a grace
    Seconds started_at = 0;         // 0: the rank that started it has no trace
    std::uint64_t flushes = 0;
    Part part;
    // The reduction: the first `batch` inputs are being reduced into `sum`, later inputs wait for the next batch.
    BufferNumber sum = kNoBuffer;
    bool sum_is_filled = false;
    std::uint32_t inputs = 0;
    std::uint32_t batch = 0;
    std::uint32_t segments = 0;
    std::uint32_t batches = 0;
    // Ranks that reduce their own arrays into `sum`. No batch runs while there are any.
    Rank adding = 0;
    std::uint64_t generation = 0;  // number of periods with `adding` > 0
    bool must_fold = false;        // the next rank in `work` must add the oldest record to totals
    bool folding = false;
    Grace grace;  // if the policy adapts it; last, since it is long
  };

  struct Outcome {
    Rank initiator;
    std::uint32_t contributors;
    std::uint32_t active;
    bool flush;
    bool last;
  };

  BoardRound(BoardMemory& memory, const BoardShape& shape, BoardMutex* mutex, EventCount* events, BoardRanks& ranks,
             BoardRecords& records, BoardBuffers& buffers, const JointSum& joint_sum);

  void record_in(const TraceTrack& trace) { trace_ = trace; }

  State& state() { return shared_->state; }
  const State& state() const { return shared_->state; }
  /// Bitmap of the contributors, by rank of the communicator.
  std::uint64_t* members() { return members_; }
  /// This rank's share of the data that the current round has taken.
  const RoundShare& own_share() const { return shares_[ranks_.own_local_rank()]; }

  void arrive();
  void give_grace(Seconds now, Seconds length);
  void start(Rank initiator);
  bool is_awaited(Rank local) const { return state().phase == Phase::kStarted && !ranks_[local].taken; }
  /// This rank must be awaited and must have brought data or left.
  void take_own();
  /// Whether this rank is awaited and may reduce its data into the sum itself.
  bool may_join() const;
  /// Joins the round. The rank then adds its data without the mutex, and calls `finish_joining`.
  JointSum::Joined join();
  /// `left_over`: a copy of the pieces that the rank has not added, or kNoBuffer.
  void finish_joining(BufferNumber left_over);
  /// Offers the inputs taken so far for reduction by all helpers. False if there are none, or a batch is under way.
  bool begin_batch();
  /// Does the remaining work of the node's part, except what other ranks are doing. Releases the lock while it
  /// computes. True if the part is complete in `sum`: the caller must then continue the round.
  bool work(std::unique_lock<BoardMutex>& lock, ReductionMemory& memory);
  /// Publishes `sum`, the result of the ranks in `members`. Arms the next round, unless this was the last.
  void complete(const Outcome& outcome);
  /// Ends a round without a result. The data of this round and of later rounds is lost, but departures still count.
  void abandon(const Outcome& outcome);

  // ---- without the mutex

  /// Reduces unclaimed segments. True if there were any: the caller must then call `work`.
  bool help(ReductionMemory& memory);
  bool offers_help() const { return static_cast<std::uint32_t>(shared_->cursor.load(std::memory_order_acquire)) > 0; }
  /// The length of a single node's grace that has not ended; otherwise 0.
  Seconds grace() const { return shared_->grace.load(std::memory_order_relaxed); }
  bool ended() const { return shared_->ended.load(std::memory_order_acquire); }

 private:
  struct Shared {
    // Number of unclaimed segments of the batch. The upper half is the batch number: a claim for another batch fails.
    alignas(64) std::atomic<std::uint64_t> cursor{0};
    alignas(64) std::atomic<std::uint32_t> segments_done{0};
    alignas(64) std::atomic<bool> ended{false};
    std::atomic<Seconds> grace{0};
    alignas(64) State state;
  };

  enum class Data : std::uint8_t { kDeposit, kJoins };
  /// `left_over_of`: the rank, if the buffer only has the pieces that it has not added itself.
  struct Input {
    BufferNumber buffer = kNoBuffer;
    Rank left_over_of = kNoRank;
  };

  void take(Rank local, Data data = Data::kDeposit);
  void settle();
  void finish_batch();
  bool is_reduced() const;
  void fold(ReductionMemory& memory);
  void reduce_segment(ReductionMemory& memory, std::uint32_t segment);

  const BoardShape& shape_;
  BoardMutex* mutex_;
  EventCount* events_;
  BoardRanks& ranks_;
  BoardRecords& records_;
  BoardBuffers& buffers_;
  const JointSum& joint_sum_;
  Shared* shared_;
  Input* inputs_;
  std::uint64_t* members_;
  RoundShare* shares_;  // by local rank
  TraceTrack trace_;
};

}  // namespace pyc
