// How a call of the application waits on its node's board. If every rank has a core, it spins for a while. Afterwards
// it yields, and finally sleeps on the board's event count. A leader drives its engine instead, since messages do not
// ring.
//
// Owned by a PartialAllreduce and used by the application's calls, one thread at a time. Takes no locks.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/stall_inspector.h"

namespace pyc {

class BoardWait {
 public:
  /// `drives`: whether this rank is its node's leader.
  BoardWait(Engine& engine, std::shared_ptr<Board> board, const StallInspector& inspector, bool drives);

  /// Whether an event has happened that rings only if a rank sleeps.
  using News = std::function<bool()>;

  /// If every rank has a core: spins for a while until a round completes or offers help, or `news` is true.
  void spin(const News& news) const;

  /// Waits until `done` is true; false after `timeout` seconds (negative: unlimited). Calls `done` repeatedly. Throws
  /// the errors of `interrupt`, RankFailedError if a rank of this node dies, and any failure of the leader's engine.
  bool until(const std::function<bool()>& done, Seconds timeout, const Engine::Interrupt& interrupt,
             const News& news) const;

 private:
  Seconds longest_sleep() const;

  Engine& engine_;
  const std::shared_ptr<Board> board_;
  const StallInspector& inspector_;
  const bool drives_;
  const int spins_;
};

}  // namespace pyc
