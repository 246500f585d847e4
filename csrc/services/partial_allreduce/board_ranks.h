// The ranks of a node, on its board: what each has handed over and is owed, and who has arrived and left.
//
// Ranks go by their *local rank*, their place in the ascending list of the node's ranks. Under the board's mutex, but
// for what is atomic.
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

/// The sum of completed rounds that a rank has not been given and the records hold no more.
struct RoundTotal {
  BufferNumber buffer = kNoBuffer;  // none: nobody contributed to them
  RoundNumber upto = 0;             // it holds rounds before this
};

/// What waits to be taken of one rank, and what else the others must know of it.
struct BoardSlot {
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
  bool keeps = false;                // there may be something kept for it, see board_records.h
  RoundTotal total;
  bool folding = false;  // `total` is being added to
  Seconds called = 0;    // when it last contributed or left
  // Not guarded by the mutex, which a rank that dies may take with it.
  std::atomic<bool> waits{false};  // it is in a call that has not returned
  std::atomic<bool> gone{false};   // it has closed the collective, and is not missed any more
};

class BoardRanks {
 public:
  /// Of the rank `own`.
  BoardRanks(BoardMemory& memory, const BoardShape& shape, Rank own);

  Rank count() const { return count_; }
  BoardSlot& operator[](Rank local) { return slots_[local]; }
  const BoardSlot& operator[](Rank local) const { return slots_[local]; }
  Rank own_local_rank() const { return own_; }
  BoardSlot& own() { return slots_[own_]; }

  /// No rank before this one waits in a call.
  bool own_is_first_that_waits() const;

  // Sets of local ranks; of a node that is alone these are the ranks.
  RankView arrived() const { return {arrived_, words_, counts_->arrived}; }
  RankView left() const { return {left_, words_, counts_->left}; }
  RankView closed() const { return {closed_, words_, counts_->closed}; }

  /// This rank, in the armed round.
  void arrive();
  /// This rank: until the next flush round or, `for_good`, for ever.
  void leave(bool for_good);
  /// A round has completed: nobody has arrived in the next, and a flush round ends the leaving of those who flushed.
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

/// Puts a rank into a set of `members`.
inline void insert(std::uint64_t* set, Rank rank, Rank& members) {
  std::uint64_t& word = set[static_cast<std::size_t>(rank) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  if ((word & bit) == 0) ++members;
  word |= bit;
}

}  // namespace pyc
