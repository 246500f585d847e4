// The round under way on a board, and the reduction that the ranks of a node do together in it.
//
//   armed     a contribution is a deposit in its rank's slot, and may be an arrival
//   started   what lies there has been taken into the round; ranks that have lacked data for too long are awaited, and
//             what they bring is taken at once. Whoever waits reduces meanwhile what has been taken
//   taken     nobody is awaited: what is handed over from now on is for the next round. The rest is reduced, then the
//             round is completed by whoever reduced last, or goes between the nodes first
//
// The order of calls: `start`, `take_own` by ranks that are awaited, `work`, `complete`. All under the board's mutex,
// but for `help`, `offers_help` and `ended`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/types.h"
#include "diagnostics/trace.h"
#include "memory/memory.h"
#include "node/event_count.h"
#include "node/robust_mutex.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_ranks.h"
#include "services/partial_allreduce/board_records.h"
#include "services/partial_allreduce/board_shape.h"
#include "services/partial_allreduce/joint_sum.h"

namespace pyc {

class BoardRound {
 public:
  enum class Phase : std::uint32_t { kArmed, kStarted, kTaken, kEnded };

  /// What this node's ranks bring to the round.
  struct Part {
    std::uint32_t contributors = 0;
    std::uint32_t active = 0;
    std::uint32_t left = 0;    // ranks that had left (flush or close) when their part was taken
    std::uint32_t closed = 0;  // ... of these, by close
  };

  struct State {
    Phase phase = Phase::kArmed;
    Rank initiator = kNoRank;
    Rank newest_arrival = kNoRank;  // local rank
    Rank awaited = 0;               // ranks that the started round waits for
    Seconds grace_ends = 0;         // 0: no grace runs
    Seconds started_at = 0;         // 0: by a rank without a trace
    std::uint64_t flushes = 0;
    Part part;
    // The reduction: the first `batch` inputs are being reduced into `sum`, those behind wait for it.
    BufferNumber sum = kNoBuffer;
    bool sum_is_filled = false;
    std::uint32_t inputs = 0;
    std::uint32_t batch = 0;
    std::uint32_t segments = 0;
    std::uint32_t batches = 0;  // begun so far
    // Ranks that reduce their arrays into `sum` by themselves. There is no batch meanwhile.
    Rank adding = 0;
    std::uint64_t generation = 0;  // of them: one ends when nobody is adding
    bool must_fold = false;        // the oldest record is to be added to totals, by the first who works
    bool folding = false;
  };

  struct Outcome {
    Rank initiator;
    std::uint32_t contributors;
    std::uint32_t active;
    bool flush;
    bool last;
  };

  /// All of the same board, which owns them; `mutex` guards it.
  BoardRound(BoardMemory& memory, const BoardShape& shape, RobustMutex* mutex, EventCount* events, BoardRanks& ranks,
             BoardRecords& records, BoardBuffers& buffers, const JointSum& joint_sum);

  /// Where what this rank does for rounds is recorded.
  void record_in(const TraceTrack& trace) { trace_ = trace; }

  State& state() { return shared_->state; }
  const State& state() const { return shared_->state; }
  /// Bitmap of the contributors, all ranks of the communicator.
  std::uint64_t* members() { return members_; }

  /// This rank, in the armed round.
  void arrive();
  void start(Rank initiator);
  bool is_awaited(Rank local) const { return state().phase == Phase::kStarted && !ranks_[local].taken; }
  /// This rank is awaited, and has brought data or left.
  void take_own();
  /// This rank is awaited, and may reduce its data into the sum by itself.
  bool may_join() const;
  /// ... and does so, without the mutex, before it calls `finish_joining`.
  JointSum::Joined join();
  /// `left_over`: a copy of what it has not added, or kNoBuffer.
  void finish_joining(BufferNumber left_over);
  /// What has been taken is to be reduced together by whoever helps; false if there is nothing to do or a batch is
  /// under way.
  bool begin_batch();
  /// Does what is left to be done for the node's part, apart from what others are doing; releases the lock meanwhile.
  /// Whether all of it is in `sum` now: the caller who gets true goes on with the round.
  bool work(std::unique_lock<RobustMutex>& lock, ReductionMemory& memory);
  /// The result is `sum`, of the ranks in `members`; the next round is armed, unless this was the last.
  void complete(const Outcome& outcome);
  /// The round is over, and nobody is given a result: its data is lost, as is that of all rounds to come. Only who has
  /// left is still known.
  void abandon(const Outcome& outcome);

  // ---- without the mutex

  /// Reduces what nobody else does yet; whether there was anything: then `work` is to be called.
  bool help(ReductionMemory& memory);
  bool offers_help() const { return static_cast<std::uint32_t>(shared_->cursor.load(std::memory_order_acquire)) > 0; }
  /// Every rank of the communicator has closed the collective.
  bool ended() const { return shared_->ended.load(std::memory_order_acquire); }

 private:
  struct Shared {
    // Segments of the batch that nobody has claimed yet, and in the upper half which batch: a claim for another one
    // fails.
    alignas(64) std::atomic<std::uint64_t> cursor{0};
    alignas(64) std::atomic<std::uint32_t> segments_done{0};
    alignas(64) std::atomic<bool> ended{false};
    alignas(64) State state;
  };

  enum class Data : std::uint8_t { kDeposit, kJoins };
  /// Data to be reduced into `sum`. `left_over_of`: it is only what is left over of this rank's.
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
  RobustMutex* mutex_;
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
