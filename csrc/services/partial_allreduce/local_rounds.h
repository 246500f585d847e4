// The rounds of a single node, except direct rounds (board_posts.h): the rank that makes a round possible starts it,
// and the rank that finishes the reduction completes it. No messages are sent. Owned by a PartialAllreduce. All calls
// need the board's mutex.
#pragma once

#include <mutex>

#include "engine/engine.h"
#include "memory/memory.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/policy.h"

namespace pyc {

class LocalRounds {
 public:
  LocalRounds(Engine& engine, ReductionMemory& memory, const Policy& policy, Board& board)
      : engine_(engine), memory_(memory), policy_(policy), board_(board) {}

  /// Does all possible work, and releases the lock while it computes. True if a round has started and is not complete.
  bool run(std::unique_lock<BoardMutex>& lock);
  bool start_if_due();
  /// Makes the open round a round of the board, with the data posted for it, and later rounds until one leaves no
  /// deposit behind. Copies under the mutex, since the data is small and this is rare.
  void take_over_posts();
  /// When the present grace ends, which no event signals; Collective::kNever without a grace.
  Seconds deadline() const;

 private:
  Rank starter();
  bool take_post(Rank local, RoundNumber round);
  bool may_be_direct() const;

  Engine& engine_;
  ReductionMemory& memory_;
  const Policy& policy_;
  Board& board_;
};

}  // namespace pyc
