#include "services/partial_allreduce/local_rounds.h"

#include "core/hot.h"
#include "engine/collective.h"
#include "memory/copy.h"

namespace pyc {

PYC_HOT bool LocalRounds::run(std::unique_lock<BoardMutex>& lock) {
  BoardRound& round = board_.round();
  const BoardRound::State& s = round.state();
  for (;;) {
    if (s.phase == BoardRound::Phase::kEnded) return false;
    if (s.phase == BoardRound::Phase::kArmed && !start_if_due()) return false;
    if (!round.work(lock, memory_)) return true;
    const auto size = static_cast<std::uint32_t>(board_.shape().size);
    if (s.part.left == size) round.state().grace.pause();
    round.complete({.initiator = s.initiator,
                    .contributors = s.part.contributors,
                    .active = s.part.active,
                    .flush = s.part.left == size,
                    .last = s.part.closed == size});
    if (may_be_direct()) board_.posts().reopen();
  }
}

PYC_HOT bool LocalRounds::start_if_due() {
  const Rank initiator = starter();
  if (initiator == kNoRank) return false;
  if (adapts_grace(policy_)) board_.round().state().grace.start(engine_.transport().now());
  board_.round().start(initiator);
  return true;
}

PYC_HOT void LocalRounds::take_over_posts() {
  BoardPosts& posts = board_.posts();
  if (!posts.on() || posts.closed()) return;
  const RoundNumber round = posts.close(board_.completed());
  board_.records().count_to(round);
  Rank first = kNoRank;
  for (Rank i = 0; i < board_.ranks().count(); ++i) {
    const bool is_there = take_post(i, round);
    if (is_there && (first == kNoRank || posts.called(i, round) < posts.called(first, round))) first = i;
  }
  if (first != kNoRank) board_.round().start(board_.shape().ranks[static_cast<std::size_t>(first)]);
}

/// Turns the post of a rank into its deposit.
bool LocalRounds::take_post(Rank local, RoundNumber round) {
  BoardPosts& posts = board_.posts();
  if (!posts.take(local, round)) return false;
  BoardSlot& slot = board_.ranks()[local];
  slot.deposit = board_.buffers().take();
  copy(memory_, board_.buffers().data(slot.deposit), posts.data_of(local, round), board_.shape().buffer_bytes());
  slot.contributions = 1;
  slot.handed_over_at = slot.fresh_for = slot.promised = round;
  slot.newest = posts.sequence(local, round);
  return true;
}

bool LocalRounds::may_be_direct() const {
  if (!board_.posts().on() || board_.ranks().left().count() > 0) return false;
  for (Rank i = 0; i < board_.ranks().count(); ++i) {
    if (board_.ranks()[i].deposit != kNoBuffer) return false;
  }
  return true;
}

/// The initiator of the armed round, if the round may start now; otherwise kNoRank.
PYC_HOT Rank LocalRounds::starter() {
  BoardRound::State& s = board_.round().state();
  const Verdict verdict = judge(policy_, board_.completed(), board_.ranks().arrived(), board_.ranks().left(),
                                s.newest_arrival, engine_.rank(), board_.shape().size);
  if (!verdict.gives_grace) return verdict.initiator;
  const Seconds now = engine_.transport().now();
  if (s.grace_ends <= 0) {
    board_.round().give_grace(now, adapts_grace(policy_) ? s.grace.reach(board_.completed(), now) : policy_.grace);
  }
  return now >= s.grace_ends ? verdict.initiator : kNoRank;
}

Seconds LocalRounds::deadline() const {
  const BoardRound::State& s = board_.round().state();
  return s.phase == BoardRound::Phase::kArmed && s.grace_ends > 0 ? s.grace_ends : Collective::kNever;
}

}  // namespace pyc
