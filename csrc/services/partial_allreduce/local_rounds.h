// The rounds of a node that is alone: the rank that makes a round possible starts it, and whoever reduces last
// completes it. Nothing is sent.
//
// A round of small data under `Full` is *direct* as long as every rank contributes once and goes on to wait: it is made
// of posts (board_posts.h), and none of this is asked. Whoever does anything else takes the open round over first.
//
// Owned by a PartialAllreduce. Under the board's mutex.
#pragma once

#include <mutex>

#include "engine/engine.h"
#include "memory/memory.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/policy.h"

namespace pyc {

class LocalRounds {
 public:
  /// What is referred to outlives this.
  LocalRounds(Engine& engine, ReductionMemory& memory, const Policy& policy, Board& board)
      : engine_(engine), memory_(memory), policy_(policy), board_(board) {}

  /// Does all that can be done now. Releases the lock while it computes. Whether a round has been started and is not
  /// complete.
  bool run(std::unique_lock<RobustMutex>& lock);
  /// Starts the armed round, if the policy says so.
  bool start_if_due();
  /// The open round and those after it are no direct rounds, until one of them leaves nothing behind: what has been
  /// posted for it counts as contributed. Copies it under the mutex: it is small, and seldom.
  void take_over_posts();
  /// When the grace that runs ends, without any event; else Collective::kNever.
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
