// What a board keeps of completed rounds: the newest ones, and what was promised to single ranks of older ones.
//
// Under the board's mutex, but for `completed`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/types.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_ranks.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

/// A completed round.
struct RoundRecord {
  RoundNumber round = kNoRound;
  Rank initiator = kNoRank;
  std::uint32_t contributors = 0;
  std::uint32_t active = 0;
  bool flush = false;
  Rank awaits = 0;                  // ranks of the node that are to be given it, and have not been
  BufferNumber buffer = kNoBuffer;  // none: no contributors, or everybody has been given it
};

/// One rank's share in it.
struct RoundShare {
  std::uint64_t newest_included = 0;  // sequence number; 0: none
  std::uint64_t staleness = 0;
};

/// What one rank is told of a completed round.
struct RoundView {
  const RoundRecord* record;
  const std::uint64_t* members;  // bitmap of contributors, all ranks of the communicator
  const RoundShare* share;       // of the rank that asks
};

class BoardRecords {
 public:
  /// `ranks` and `buffers`: of the same board, which owns all three.
  BoardRecords(BoardMemory& memory, const BoardShape& shape, BoardRanks& ranks, BoardBuffers& buffers);

  /// Rounds complete. Written under the mutex; what came before is visible to whoever reads it.
  RoundNumber completed() const { return completed_->rounds.load(std::memory_order_acquire); }

  RoundView newest() const;
  /// Of a round; nothing if it is held no more.
  std::optional<RoundView> of(RoundNumber round) const;
  /// Of the newest flush round, after one that this rank was in.
  RoundView flush_record() const;
  /// The one that the next to complete takes the place of.
  const RoundRecord& oldest() const { return *records_[index_of(completed())]; }

  /// Makes room: keeps the oldest record for the ranks that it was promised to, and drops it.
  void evict_oldest();
  /// A round has completed: `members` and, by local rank, `shares` are copied. After `evict_oldest`.
  void add(const RoundRecord& record, const std::uint64_t* members, const RoundShare* shares);
  /// ... and this says so: the next round has begun.
  void count_round() { count_to(completed() + 1); }
  /// This rank has been given the rounds from `first` on, before `end`, or will not ask for them: a result that nobody
  /// else is to be given is released.
  void give(RoundNumber first, RoundNumber end);
  /// So many are complete: of direct rounds there is no record.
  void count_to(RoundNumber rounds) { completed_->rounds.store(rounds, std::memory_order_release); }
  /// Keeps a round for this rank alone.
  void keep_for_own(const RoundView& view);

  /// What was kept for this rank alone of earlier rounds is not needed any more.
  void drop_kept(RoundNumber before);

 private:
  struct Completed {
    std::atomic<RoundNumber> rounds{0};
  };
  /// A record by local rank, kept for that rank alone.
  struct Kept {
    Kept(BoardMemory& memory, std::size_t ranks, std::size_t member_words);
    RoundView view(Rank local) const;
    SharedRows<RoundRecord> records;
    SharedRows<std::uint64_t> members;
    SharedRows<RoundShare> shares;
  };

  std::size_t index_of(RoundNumber round) const { return round % length_; }
  RoundView view(std::size_t index) const;
  void keep(const Kept& into, std::size_t index, Rank local, bool with_data);
  void drop(RoundRecord& record);

  BoardRanks& ranks_;
  BoardBuffers& buffers_;
  std::size_t length_;
  std::size_t member_words_;
  bool keeps_totals_;
  bool releases_early_;  // results that every rank has been given; else when their records make room
  Completed* completed_;
  SharedRows<RoundRecord> records_;
  SharedRows<std::uint64_t> members_;
  SharedRows<RoundShare> shares_;  // by local rank
  Kept promised_;
  Kept flushed_;
};

}  // namespace pyc
