// Calls of a partial allreduce that join a round (joint_sum.h). Under Full on a single node, every first call of a rank
// in a round joins.
#include "core/hot.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

/// Whether the current round takes this rank's data at once, without a deposit. May start the round. Under the mutex.
PYC_HOT bool PartialAllreduce::may_join() {
  Board& board = *board_;
  promise_kept();
  if (board.completed() > accounted_) return false;
  if (board.round().state().phase == BoardRound::Phase::kArmed) {
    const bool starts = nodes_.count() == 1 && options_.policy.kind == Policy::Kind::kFull;
    if (!starts || board.ranks().own().deposit != kNoBuffer) return false;
    board.round().arrive();
    local_.start_if_due();
  }
  return board.round().may_join();
}

PYC_HOT bool PartialAllreduce::contribute_jointly(const std::shared_ptr<Call>& call, const std::byte* data,
                                                  Taker taker) {
  Board& board = *board_;
  JointSum& sum = board.joint_sum();
  if (!sum.on()) return false;
  Lock lock = enter(limit_);
  check_not_left();
  if (!may_join()) return false;
  BufferNumber copy = kNoBuffer;
  hand_over(*call, copy, false);
  pending_.push_back(call);
  board.ranks().own().called = call->made;
  const JointSum::Joined joined = board.round().join();
  lock.unlock();
  const Seconds begin = trace_.now();
  const bool is_added = sum.add(joined, memory_, data);
  trace_.add("reduce", begin, call->round);
  if (!is_added) {
    lock = reenter();
    copy = board.buffers().take();
    lock.unlock();
    sum.copy_left_over(memory_, board.buffers().data(copy), data);
  }
  trace_.add("contribute", call->made, call->round);
  lock = reenter();
  board.round().finish_joining(copy);
  run_rounds(lock);
  lock.unlock();
  if (leader_ && taker == Taker::kAtOnce) engine_->advance();
  return true;
}

}  // namespace pyc
