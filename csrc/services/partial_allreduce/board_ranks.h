// The ranks of a node on its board: deposits, results owed, and the sets of ranks that have arrived or left.
//
// Ranks are numbered by *local rank*, the index in the ascending list of the node's ranks. Everything except the
// atomics needs the board's mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/rank_set.h"
#include "core/types.h"
#include "node/process.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

/// The sum of completed rounds that a rank has not received and that have no record anymore.
struct RoundTotal {
  BufferNumber buffer = kNoBuffer;  // none: the rounds had no contributors
  RoundNumber upto = 0;             // contains rounds before this one
};

struct BoardSlot {
  ProcessId process;
  BufferNumber deposit = kNoBuffer;
  std::uint64_t contributions = 0;   // combined in the deposit
  RoundNumber handed_over_at = 0;    // rounds completed when the oldest contribution was made
  RoundNumber fresh_for = kNoRound;  // the round in which the newest contribution arrived
  std::uint64_t newest = 0;          // sequence number of the newest contribution
  std::uint64_t delivered = 0;       // of the newest in a round whose record is gone, if the board is recoverable
  std::uint64_t lacking = 0;         // consecutive rounds without data of this rank
  bool taken = false;                // the current round has taken its part, with or without data
  RoundNumber promised = kNoRound;   // the record of this round is kept for the rank
  RoundNumber given = 0;             // the application has received the rounds before this one
  RoundNumber owed = kNoRound;       // the application gets no round from this one on; kNoRound until it closes
  bool flush_waits = false;          // the record of the next flush round is kept for the rank
  bool keeps = false;                // a record may be kept for the rank, see board_records.h
  RoundTotal total;
  bool folding = false;  // a round is being added to `total`
  Seconds called = 0;    // time of its last contribution, flush or close
  // For an adaptive grace, until the leader has read it: the round that a call has missed first, and when.
  RoundNumber missed = kNoRound;
  Seconds missed_at = 0;
  // Not guarded by the mutex, which a rank may hold when it dies.
  std::atomic<bool> waits{false};  // the rank waits in a call
  std::atomic<bool> gone{false};   // it has closed the collective and done its last work; its process may end
};

class BoardRanks {
 public:
  BoardRanks(BoardMemory& memory, const BoardShape& shape, Rank own);

  Rank count() const { return count_; }
  BoardSlot& operator[](Rank local) { return slots_[local]; }
  const BoardSlot& operator[](Rank local) const { return slots_[local]; }
  Rank own_local_rank() const { return own_; }
  BoardSlot& own() { return slots_[own_]; }

  /// No rank with a lower local rank waits in a call.
  bool own_is_first_that_waits() const;

  // Sets of local ranks. On a single node, local ranks are ranks.
  RankView arrived() const { return {arrived_, words_, counts_->arrived}; }
  RankView left() const { return {left_, words_, counts_->left}; }
  RankView closed() const { return {closed_, words_, counts_->closed}; }

  /// This rank arrives in the armed round.
  void arrive();
  /// This rank leaves until the next flush round, or permanently if `for_good`.
  void leave(bool for_good);
  /// A round has completed: clears the arrivals. After a flush round, ranks that left to flush are back.
  void end_round(bool flush);

 private:
  struct Counts {
    Rank arrived = 0;
    Rank left = 0;
    Rank closed = 0;
  };

  Rank count_;
  Rank own_;
  std::size_t words_;
  BoardSlot* slots_;
  Counts* counts_;
  std::uint64_t* arrived_;
  std::uint64_t* left_;
  std::uint64_t* closed_;
};

inline void insert(std::uint64_t* set, Rank rank, Rank& members) {
  std::uint64_t& word = set[static_cast<std::size_t>(rank) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  if ((word & bit) == 0) ++members;
  word |= bit;
}

}  // namespace pyc
