// What the ranks of one node share for one partial allreduce: the state of the protocol, the buffers, and the reduction
// that they do together. Everything here lives in shared memory; a `Board` is one rank's way to it.
//
// The mutex guards all of it but the atomics. It is held for a few instructions and never over a copy or a reduction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "core/types.h"
#include "memory/memory.h"
#include "node/bell.h"
#include "node/process.h"
#include "node/robust_mutex.h"
#include "node/shared_memory.h"

namespace pyc {

/// A buffer of the board, by number.
using BufferNumber = std::int32_t;
inline constexpr BufferNumber kNoBuffer = -1;
inline constexpr RoundNumber kNoRound = ~RoundNumber{0};

struct BoardShape {
  Rank size = 0;
  std::size_t count = 0;  // elements
  Elements elements;      // of a contribution and of what is computed with
  ReduceOp op = ReduceOp::kSum;
  std::size_t records = 1;  // completed rounds that are kept, the newest ones
  bool keeps_totals = false;

  std::size_t buffer_bytes() const { return count * size_of(elements.accumulator); }
};

class Board {
 public:
  /// Whether a round has begun.
  enum class Phase : std::uint32_t { kArmed, kCombining, kEnded };

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
    RoundNumber promised = kNoRound;   // its record is kept for this rank
    RoundNumber given = 0;             // rounds before this have been given to the application
    bool flush_waits = false;          // the record of the next flush round is kept for this rank
    Total total;
    bool folding = false;  // `total` is being added to
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
    std::uint64_t* members;  // bitmap of contributors
    Share* shares;           // by rank; one only in what is kept for one rank
  };

  struct State {
    Phase phase = Phase::kArmed;
    bool started = false;  // by `initiator`; the round waits for ranks that lack data
    Rank initiator = kNoRank;
    Rank newest_arrival = kNoRank;
    Rank combiner = kNoRank;
    Rank arrivals = 0;
    Rank leavers = 0;
    Rank closers = 0;
    Seconds grace_ends = 0;  // 0: no grace runs
    std::uint64_t flushes = 0;
    // The reduction under way.
    std::uint32_t inputs = 0;
    BufferNumber output = kNoBuffer;
    std::uint32_t chunks = 0;
    // Free buffers, as a stack.
    std::uint32_t free = 0;
  };

  static std::size_t bytes(const BoardShape& shape);

  /// `first`: constructs what is shared; the others come after.
  Board(std::shared_ptr<SharedMemory> memory, const BoardShape& shape, Rank rank, bool first);

  RobustMutex& mutex() { return header_->mutex; }
  Bell& bell() { return header_->bell; }
  /// Rounds complete. Written under the mutex; what came before is visible to whoever reads it.
  RoundNumber completed() const { return header_->completed.load(std::memory_order_acquire); }
  Rank closers() const { return header_->closers.load(std::memory_order_acquire); }

  // ---- under the mutex

  State& state() { return header_->state; }
  Place& place(Rank rank) { return places_[rank]; }
  Place& own() { return places_[rank_]; }
  RankView arrived() const { return {arrived_, words_, header_->state.arrivals}; }
  RankView left() const { return {left_, words_, header_->state.leavers}; }
  RankView closed() const { return {closed_, words_, header_->state.closers}; }
  void arrive(Rank rank);
  void leave(Rank rank, bool for_good);

  const RecordView& newest() { return records_[(completed() - 1) % records_.size()]; }
  /// The record of a round; null if it is held no more.
  const RecordView* record_of(RoundNumber round);
  /// The record of the newest flush round, after one that this rank was in.
  const RecordView& flush_record();
  RecordView& kept() { return kept_[static_cast<std::size_t>(rank_)]; }
  RecordView& flushed() { return flushed_[static_cast<std::size_t>(rank_)]; }
  /// This rank's share in a round.
  const Share& share(const RecordView& view) const;
  std::size_t words() const { return words_; }

  BufferNumber take_buffer();
  void retain(BufferNumber buffer) { ++references_[buffer]; }
  void release(BufferNumber& buffer);
  std::byte* data(BufferNumber buffer) const { return buffers_ + static_cast<std::size_t>(buffer) * stride_; }

  /// What the caller of `begin_round` has to do before `end_round`, without the mutex.
  struct Work {
    bool reduction = false;
    std::vector<Rank> behind;  // ranks that have not been given the oldest record, which is to make room
  };
  /// Takes every rank's deposit into the round.
  Work begin_round(Rank initiator);
  /// The round is complete, and the next armed.
  void end_round();

  /// What was kept for this rank alone is not needed any more.
  void drop_kept() { drop(kept()); }
  void drop_flushed() { drop(flushed()); }

  // ---- without the mutex

  /// Reduces what nobody else does yet, of the round under way; false if there is nothing (left) to help with.
  bool help(Memory& memory);
  void work(Memory& memory, const Work& work);

 private:
  struct Header {
    RobustMutex mutex;
    alignas(64) std::atomic<RoundNumber> completed{0};
    alignas(64) Bell bell;
    // Chunks that nobody has claimed yet, and in the upper half the round (its low half, plus one): a claim for another
    // round fails.
    alignas(64) std::atomic<std::uint64_t> cursor{0};
    alignas(64) std::atomic<std::uint32_t> chunks_done{0};
    alignas(64) std::atomic<Rank> closers{0};
    alignas(64) State state;
  };

  template <class Take>
  static void lay_out(const BoardShape& shape, Board* board, Take take);
  static std::size_t buffer_count(const BoardShape& shape);
  void keep(RecordView& into, const RecordView& from, Rank rank, bool with_data);
  void drop(RecordView& view);
  void evict(RecordView& view);
  void reduce(Memory& memory);
  void reduce_chunk(Memory& memory, std::uint32_t chunk);
  void fold(Memory& memory, const std::vector<Rank>& behind);

  std::shared_ptr<SharedMemory> memory_;
  BoardShape shape_;
  Rank rank_;
  std::size_t words_;
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
  Record* running_ = nullptr;
  std::byte* buffers_ = nullptr;
  std::vector<RecordView> records_;
  std::vector<RecordView> kept_;
  std::vector<RecordView> flushed_;
};

}  // namespace pyc
