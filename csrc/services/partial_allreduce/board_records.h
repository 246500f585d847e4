// The records of completed rounds on a board: the newest rounds, and older rounds that were promised to single ranks.
//
// All calls except `completed` need the board's mutex.
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

struct RoundRecord {
  RoundNumber round = kNoRound;
  Rank initiator = kNoRank;
  std::uint32_t contributors = 0;
  std::uint32_t active = 0;
  bool flush = false;
  Rank awaits = 0;                  // ranks of the node that have yet to receive the result
  BufferNumber buffer = kNoBuffer;  // none without contributors, or when all ranks have received it
};

struct RoundShare {
  std::uint64_t newest_included = 0;  // sequence number; 0 without data
  std::uint64_t staleness = 0;
};

/// A completed round, as one rank sees it.
struct RoundView {
  const RoundRecord* record;
  const std::uint64_t* members;  // bitmap of contributors, by rank of the communicator
  const RoundShare* share;       // of the calling rank
};

class BoardRecords {
 public:
  BoardRecords(BoardMemory& memory, const BoardShape& shape, BoardRanks& ranks, BoardBuffers& buffers);

  /// Number of completed rounds. Written under the mutex with release order: a reader sees all earlier writes.
  RoundNumber completed() const { return completed_->rounds.load(std::memory_order_acquire); }

  RoundView newest() const;
  /// The record of a round; nullopt if it is no longer held.
  std::optional<RoundView> of(RoundNumber round) const;
  /// The record of the newest flush round. Only after a flush round that included this rank.
  RoundView flush_record() const;
  /// The record that the next completed round replaces.
  const RoundRecord& oldest() const { return *records_[index_of(completed())]; }

  /// Drops the oldest record. Ranks to which it was promised keep a copy.
  void evict_oldest();
  /// Copies `members`, and `shares` by local rank. Call `evict_oldest` before and `count_round` after.
  void add(const RoundRecord& record, const std::uint64_t* members, const RoundShare* shares);
  void count_round() { count_to(completed() + 1); }
  /// This rank has received rounds [first, end) or will not ask for them. Releases results that no other rank awaits.
  void give(RoundNumber first, RoundNumber end);
  /// Sets the number of completed rounds. Direct rounds have no records.
  void count_to(RoundNumber rounds) { completed_->rounds.store(rounds, std::memory_order_release); }
  void keep_for_own(const RoundView& view);

  /// Drops the kept records of this rank for rounds earlier than `before`.
  void drop_kept(RoundNumber before);

 private:
  struct Completed {
    std::atomic<RoundNumber> rounds{0};
  };
  /// Records by local rank, each kept for that rank only.
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
  bool releases_early_;  // releases a result when all ranks have it, not with its record
  bool recoverable_;
  Completed* completed_;
  SharedRows<RoundRecord> records_;
  SharedRows<std::uint64_t> members_;
  SharedRows<RoundShare> shares_;  // by local rank
  Kept promised_;
  Kept flushed_;
};

}  // namespace pyc
