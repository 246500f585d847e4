// How a call of the application waits on its node's board: where every rank has a core it spins for a while, then it
// lets others run, then it sleeps on the board's event count. A leader drives its engine meanwhile, which nothing rings
// for.
//
// Owned by a PartialAllreduce; the application's calls come here, one thread at a time. Nothing is locked.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/stall_inspector.h"

namespace pyc {

class BoardWait {
 public:
  /// `drives`: this rank is its node's leader. `longest_sleep`: how long it may miss what nothing rings for. What is
  /// referred to outlives this.
  BoardWait(Engine& engine, std::shared_ptr<Board> board, const StallInspector& inspector, bool drives,
            Seconds longest_sleep);

  /// Whether something has happened that nothing rings for if nobody sleeps.
  using News = std::function<bool()>;

  /// Where every rank has a core: looks for a while whether a round completes, whether one offers help, or for `news`.
  void spin(const News& news) const;

  /// Until `done`, which is asked again and again; false after `timeout` seconds (negative: no limit). Throws what
  /// `interrupt` does, RankFailedError if a rank of this node dies, and what the leader's engine failed with.
  bool until(const std::function<bool()>& done, Seconds timeout, const Engine::Interrupt& interrupt,
             const News& news) const;

 private:
  Engine& engine_;
  const std::shared_ptr<Board> board_;
  const StallInspector& inspector_;
  const bool drives_;
  const Seconds longest_sleep_;
  const int spins_;
};

}  // namespace pyc
