// How the ranks stand to the rounds of a partial allreduce: who lives, who has come, and whom a round waits for.
//
// Owned by a PartialAllreduce. It only looks, and has nothing to guard. Who lives is looked up without the board's
// mutex, which a rank that died may have taken with it; who has come is read under it. What a rank waits for in other
// collectives is known to the engine: `reports_here` needs its progress lock, which is taken before the board's mutex.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "services/common/rank_state.h"
#include "services/partial_allreduce/board.h"

namespace pyc {

class StallInspector {
 public:
  /// What is referred to outlives this.
  StallInspector(Engine& engine, const Collective& collective, const Nodes& nodes, std::shared_ptr<Board> board);

  /// RankFailedError if a rank of this node that has not closed is gone.
  void check_alive() const;
  /// The same at less cost, and what the leader's engine failed with: calls that never wait, as under Solo, would hear
  /// of neither.
  void check_briefly() const;

  /// How the ranks of this node stand to a round, by local rank. Under the engine's progress lock.
  std::vector<Report> reports_here(RoundNumber round) const;

  /// If there are other nodes: lets this node's leader ask how their ranks stand to a round.
  void inquire(RoundNumber round);
  /// Whether all have answered, and not all have come.
  bool knows_the_missing() const;
  /// Of a StallError: whom a round, or a flush, waits for. Takes the progress lock.
  std::string text(RoundNumber round, Seconds waited, bool flush) const;
  /// Of a StallError: who has not given back the board's mutex, as far as can be seen.
  std::string holder() const;

 private:
  Report report_of(Rank local, RoundNumber round, bool may_lock) const;
  std::vector<Report> reports(RoundNumber round) const;
  std::string why_silent(const std::vector<Report>& reports) const;

  Engine& engine_;
  const Collective& collective_;
  const Nodes& nodes_;
  const std::shared_ptr<Board> board_;
};

}  // namespace pyc
