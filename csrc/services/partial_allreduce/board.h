// What the ranks of one node share for one partial allreduce: what each has handed over, how far the round is, the
// results, and the reduction that they do together. Everything here lives in shared memory; a `Board` is one rank's way
// to it. The node may be alone, or one of several: then the node's agent takes its part of the round to the others.
//
//   armed     a contribution is a deposit at its rank's *place*, and may be an arrival
//   started   what lies there has been taken into the round; ranks that have lacked data for too long are awaited, and
//             what they bring is taken at once. Whoever waits reduces meanwhile what has been taken
//   taken     nobody is awaited: what is handed over from now on is for the next round. The rest is reduced, then the
//             round is completed by whoever reduced last, or goes between the nodes first
//
// The mutex guards all of it but the atomics. It is held for a few instructions and never over a copy or a reduction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "core/types.h"
#include "memory/memory.h"
#include "node/event_count.h"
#include "node/process.h"
#include "node/robust_mutex.h"
#include "node/shared_memory.h"
#include "services/common/standing.h"

namespace pyc {

/// A buffer of the board, by number.
using BufferNumber = std::int32_t;
inline constexpr BufferNumber kNoBuffer = -1;

inline constexpr std::size_t kSegmentBytes = std::size_t{64} << 10U;  // what a rank reduces at a time

struct BoardShape {
  std::vector<Rank> ranks;  // of this node, ascending; a *place* is an index into it
  Rank size = 0;            // of the communicator
  std::size_t count = 0;    // elements
  Elements elements;        // of a contribution and of what is computed with
  ReduceOp op = ReduceOp::kSum;
  std::size_t records = 1;                     // completed rounds that are kept, the newest ones
  bool keeps_totals = false;                   // ... and of older ones the sum, for each rank
  std::optional<std::uint64_t> max_staleness;  // rounds in a row that a rank may lack data for
  bool track_members = true;
  std::size_t segment_bytes = kSegmentBytes;

  std::size_t places() const { return ranks.size(); }
  bool is_alone() const { return ranks.size() == static_cast<std::size_t>(size); }
  std::size_t buffer_bytes() const { return count * size_of(elements.accumulator); }
};

class Board {
 public:
  enum class Phase : std::uint32_t { kArmed, kStarted, kTaken, kEnded };

  /// The sum of completed rounds that a rank has not been given and the records hold no more.
  struct Total {
    BufferNumber buffer = kNoBuffer;  // none: nobody contributed to them
    RoundNumber upto = 0;             // it holds rounds before this
  };

  /// What waits to be taken of one rank, and what else the others must know of it.
  struct Place {
    ProcessId process;
    BufferNumber deposit = kNoBuffer;
    std::uint64_t contributions = 0;   // combined in it
    RoundNumber handed_over_at = 0;    // rounds completed when its oldest contribution came
    RoundNumber fresh_for = kNoRound;  // the round in which its newest contribution arrived
    std::uint64_t newest = 0;          // its sequence number
    std::uint64_t lacking = 0;         // rounds in a row that this rank had nothing for
    bool taken = false;                // its part in the running round, data or not
    RoundNumber promised = kNoRound;   // its record is kept for this rank
    RoundNumber given = 0;             // rounds before this have been given to the application
    RoundNumber owed = kNoRound;       // ... or will be: all, until it closes
    bool flush_waits = false;          // the record of the next flush round is kept for this rank
    bool keeps = false;                // there may be something in `kept` or `flushed`
    Total total;
    bool folding = false;  // `total` is being added to
    Seconds called = 0;    // when it last contributed or left
    // Not guarded by the mutex, which a rank that dies may take with it.
    std::atomic<bool> waits{false};  // it is in a call that has not returned
    std::atomic<bool> gone{false};   // it has closed the collective, and is not missed any more
  };

  /// A completed round.
  struct Record {
    RoundNumber round = kNoRound;
    Rank initiator = kNoRank;
    std::uint32_t contributors = 0;
    std::uint32_t active = 0;
    bool flush = false;
    BufferNumber buffer = kNoBuffer;  // none: no contributors
  };
  /// One rank's share in it.
  struct Share {
    std::uint64_t newest_included = 0;  // sequence number; 0: none
    std::uint64_t staleness = 0;
  };
  struct RecordView {
    Record* record;
    std::uint64_t* members;  // bitmap of contributors, all ranks of the communicator
    Share* shares;           // by place; one only in what is kept for one rank
  };

  /// What this node's ranks bring to the round under way.
  struct Part {
    std::uint32_t contributors = 0;
    std::uint32_t active = 0;
    std::uint32_t left = 0;    // ranks that had left (flush or close) when their part was taken
    std::uint32_t closed = 0;  // ... of these, by close
  };

  struct State {
    Phase phase = Phase::kArmed;
    Rank initiator = kNoRank;
    Rank newest_arrival = kNoRank;  // place
    Rank arrivals = 0;
    Rank leavers = 0;
    Rank closers = 0;
    Rank awaited = 0;        // places that the started round waits for
    Seconds grace_ends = 0;  // 0: no grace runs
    std::uint64_t flushes = 0;
    Part part;
    // The reduction: the first `batch` inputs are being reduced into `sum`, those behind wait for it.
    BufferNumber sum = kNoBuffer;
    bool sum_is_filled = false;
    std::uint32_t inputs = 0;
    std::uint32_t batch = 0;
    std::uint32_t segments = 0;
    std::uint32_t batches = 0;  // begun so far
    bool must_fold = false;     // the oldest record is to be added to totals, by the first who works
    bool folding = false;
    std::uint32_t free = 0;  // buffers, as a stack
    // The agent is asked how every rank stands to this round; the answers come in `reports`.
    RoundNumber inquired = kNoRound;
    bool must_inquire = false;
  };

  static std::size_t bytes(const BoardShape& shape);

  /// `first`: constructs what is shared; the others come after.
  Board(std::shared_ptr<SharedMemory> memory, const BoardShape& shape, Rank place, bool first);

  RobustMutex& mutex() { return header_->mutex; }
  EventCount& bell() { return header_->bell; }
  const BoardShape& shape() const { return shape_; }

  /// Rounds complete. Written under the mutex; what came before is visible to whoever reads it.
  RoundNumber completed() const { return header_->completed.load(std::memory_order_acquire); }
  /// Every rank of the communicator has closed it.
  bool ended() const { return header_->ended.load(std::memory_order_acquire); }

  /// The node's agent should look; see `take_attention`.
  void draw_attention() { header_->attention.store(true, std::memory_order_release); }
  bool take_attention() {
    return header_->attention.load(std::memory_order_relaxed) &&
           header_->attention.exchange(false, std::memory_order_acq_rel);
  }

  // ---- under the mutex

  State& state() { return header_->state; }
  Place& place(Rank place) { return places_[place]; }
  Place& own() { return places_[place_]; }
  Rank own_place() const { return place_; }
  // Sets of places; of a node that is alone these are the ranks.
  RankView arrived() const { return {arrived_, place_words_, header_->state.arrivals}; }
  RankView left() const { return {left_, place_words_, header_->state.leavers}; }
  RankView closed() const { return {closed_, place_words_, header_->state.closers}; }
  void arrive();
  void leave(bool for_good);

  const RecordView& newest() { return records_[(completed() - 1) % records_.size()]; }
  /// The record of a round; null if it is held no more.
  const RecordView* record_of(RoundNumber round);
  /// The record of the newest flush round, after one that this rank was in.
  const RecordView& flush_record();
  RecordView& kept() { return kept_[static_cast<std::size_t>(place_)]; }
  RecordView& flushed() { return flushed_[static_cast<std::size_t>(place_)]; }
  /// This rank's share in a round.
  const Share& share(const RecordView& view) const;
  std::size_t member_words() const { return member_words_; }
  /// What was kept for this rank alone of earlier rounds is not needed any more.
  void drop_kept(RoundNumber before);

  BufferNumber take_buffer();
  void retain(BufferNumber buffer) { ++references_[buffer]; }
  void release(BufferNumber& buffer);
  std::byte* data(BufferNumber buffer) const { return buffers_ + static_cast<std::size_t>(buffer) * stride_; }

  /// By rank of the communicator: how they stand to the round inquired of.
  Report* reports() { return reports_; }

  // The round: `start`, `take_own` by ranks that are awaited, `work`, `complete`.

  void start(Rank initiator);
  bool is_awaited(Rank place) const { return header_->state.phase == Phase::kStarted && !places_[place].taken; }
  /// This rank is awaited, and has brought data or left.
  void take_own();
  /// What has been taken is to be reduced together by whoever helps; false if there is nothing to do or a batch is
  /// under way.
  bool begin_batch();
  /// Does what is left to be done for the node's part, apart from what others are doing; releases the lock meanwhile.
  /// Whether all of it is in `sum` now: whoever is told so goes on with the round.
  bool work(std::unique_lock<RobustMutex>& lock, Memory& memory);
  bool is_reduced() const;
  std::uint64_t* members() { return members_; }

  struct Outcome {
    Rank initiator;
    std::uint32_t contributors;
    std::uint32_t active;
    bool flush;
    bool last;
  };
  /// The result is `sum`, of the ranks in `members`; the next round is armed, unless this was the last.
  void complete(const Outcome& outcome);

  // ---- without the mutex

  /// The agent's engine cannot go on: everybody else's next look throws what it threw.
  void fail(const std::exception_ptr& error);
  void check_failure() const;

  /// Reduces what nobody else does yet; whether there was anything: then `work` is to be called.
  bool help(Memory& memory);
  bool offers_help() const { return static_cast<std::uint32_t>(header_->cursor.load(std::memory_order_acquire)) > 0; }

 private:
  struct Header {
    RobustMutex mutex;
    alignas(64) std::atomic<RoundNumber> completed{0};
    alignas(64) EventCount bell;
    // Segments of the batch that nobody has claimed yet, and in the upper half which batch: a claim for another one
    // fails.
    alignas(64) std::atomic<std::uint64_t> cursor{0};
    alignas(64) std::atomic<std::uint32_t> segments_done{0};
    alignas(64) std::atomic<bool> ended{false};
    alignas(64) std::atomic<bool> attention{false};
    alignas(64) State state;
    alignas(64) std::atomic<bool> failed{false};  // the agent's engine; why is written before
    bool rank_failed = false;
    char failure[256] = {};
  };

  template <class Take>
  static void lay_out(const BoardShape& shape, Board* board, Take take);
  static std::size_t buffer_count(const BoardShape& shape);
  std::uint32_t places() const { return static_cast<std::uint32_t>(shape_.places()); }
  void take(Rank place);
  void settle();
  void finish_batch();
  void fold(Memory& memory);
  void keep(RecordView& into, const RecordView& from, Rank place, bool with_data);
  void drop(RecordView& view);
  void evict(RecordView& view);
  void reduce_segment(Memory& memory, std::uint32_t segment);
  RecordView& oldest() { return records_[completed() % records_.size()]; }

  std::shared_ptr<SharedMemory> memory_;
  BoardShape shape_;
  Rank place_;
  std::size_t place_words_;
  std::size_t member_words_;
  std::size_t stride_;
  Header* header_ = nullptr;
  Place* places_ = nullptr;
  std::uint64_t* arrived_ = nullptr;
  std::uint64_t* left_ = nullptr;
  std::uint64_t* closed_ = nullptr;
  std::uint32_t* references_ = nullptr;
  BufferNumber* free_ = nullptr;
  BufferNumber* inputs_ = nullptr;
  std::uint64_t* members_ = nullptr;  // of the round under way
  Share* shares_ = nullptr;
  Report* reports_ = nullptr;
  std::byte* buffers_ = nullptr;
  std::vector<RecordView> records_;
  std::vector<RecordView> kept_;
  std::vector<RecordView> flushed_;
};

}  // namespace pyc
