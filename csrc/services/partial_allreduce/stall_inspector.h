// The state of ranks in a partial allreduce: which ranks live, which have arrived, and for which a round waits.
//
// Owned by a PartialAllreduce. It has no state to guard. It checks which ranks live without the board's mutex, which a
// dead rank may hold; it reads arrivals under the mutex. The engine knows in which other collective a rank waits:
// `reports_here` needs the progress lock, which is taken before the board's mutex.
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
  StallInspector(Engine& engine, const Collective& collective, const Nodes& nodes, std::shared_ptr<Board> board);

  /// Throws RankFailedError if a rank of this node has died and has not closed.
  void check_alive() const;
  /// A cheaper check, which also throws the failure of the leader's engine. For calls that never wait, as under Solo.
  void check_briefly() const;

  /// Reports of this node's ranks on a round, by local rank. Under the engine's progress lock.
  std::vector<Report> reports_here(RoundNumber round) const;

  /// If there are other nodes: asks this node's leader to collect the reports of all ranks on a round.
  void inquire(RoundNumber round);
  /// Whether all ranks have reported, and some have not arrived.
  bool knows_the_missing() const;
  /// Text of a StallError: the ranks for which a round or a flush waits. Takes the progress lock.
  std::string text(RoundNumber round, Seconds waited, bool flush) const;
  /// Text of a StallError: the rank that holds the board's mutex, if it can be determined.
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
