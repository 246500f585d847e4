#include "services/partial_allreduce/local_rounds.h"

#include "engine/collective.h"
#include "hot/hot.h"

namespace pyc {

PYC_HOT bool LocalRounds::run(std::unique_lock<RobustMutex>& lock) {
  BoardRound& round = board_.round();
  const BoardRound::State& s = round.state();
  for (;;) {
    if (s.phase == BoardRound::Phase::kEnded) return false;
    if (s.phase == BoardRound::Phase::kArmed) {
      const Rank initiator = starter();
      if (initiator == kNoRank) return false;
      round.start(initiator);
    }
    if (!round.work(lock, memory_)) return true;
    const auto size = static_cast<std::uint32_t>(board_.shape().size);
    round.complete({.initiator = s.initiator,
                    .contributors = s.part.contributors,
                    .active = s.part.active,
                    .flush = s.part.left == size,
                    .last = s.part.closed == size});
  }
}

/// Who starts the armed round, if it may start now; else kNoRank.
PYC_HOT Rank LocalRounds::starter() {
  BoardRound::State& s = board_.round().state();
  const Verdict verdict = judge(policy_, board_.completed(), board_.ranks().arrived(), board_.ranks().left(),
                                s.newest_arrival, engine_.rank(), board_.shape().size);
  if (!verdict.gives_grace) return verdict.initiator;
  const Seconds now = engine_.transport().now();
  if (s.grace_ends <= 0) s.grace_ends = now + policy_.grace;
  return now >= s.grace_ends ? verdict.initiator : kNoRank;
}

Seconds LocalRounds::deadline() const {
  const BoardRound::State& s = board_.round().state();
  return s.phase == BoardRound::Phase::kArmed && s.grace_ends > 0 ? s.grace_ends : Collective::kNever;
}

}  // namespace pyc
