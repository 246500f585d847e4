// The rounds of a node that is alone: the rank that makes a round possible starts it, and whoever reduces last
// completes it. Nothing is sent.
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
  LocalRounds(Engine& engine, Memory& memory, const Policy& policy, Board& board)
      : engine_(engine), memory_(memory), policy_(policy), board_(board) {}

  /// Does all that can be done now. Releases the lock while it computes. Whether a round has been started and is not
  /// complete.
  bool run(std::unique_lock<RobustMutex>& lock);
  /// When the grace that runs ends, without any event; else Collective::kNever.
  Seconds deadline() const;

 private:
  Rank starter();

  Engine& engine_;
  Memory& memory_;
  const Policy& policy_;
  Board& board_;
};

}  // namespace pyc
