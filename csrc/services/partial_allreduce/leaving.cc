// How a rank flushes and leaves a partial allreduce, and which results are kept for it.
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "services/partial_allreduce/leader.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

void PartialAllreduce::leave_for_good() {
  naming_the_dead([&] {
    engine_->recorder().left(id_);
    Lock lock = reenter();
    do_leave(lock, true);
  });
}

void PartialAllreduce::do_leave(Lock& lock, bool for_good) {
  if (nodes_.count() == 1) local_.take_over_posts();
  if (!for_good && direct_call_) move_direct_call();
  BoardSlot& own = board_->ranks().own();
  own.called = engine_->transport().now();
  if (for_good) end_of_results();
  board_->ranks().leave(for_good);
  if (nodes_.count() > 1) board_->draw_attention();
  run_rounds(lock);
  if (for_good) own.gone.store(true, std::memory_order_relaxed);  // last: until here it may reduce for others
}

/// Before this rank leaves: keeps the rounds of its open requests. If the round of a call is no longer kept, the call
/// gets the last of these.
void PartialAllreduce::end_of_results() {
  Board& board = *board_;
  BoardSlot& own = board.ranks().own();
  if (open_flush_) return;  // which keeps all rounds
  own.owed = accounted_;
  if (own.promised != kNoRound && own.promised >= results_.given()) {
    own.owed = std::max<RoundNumber>(accounted_, own.promised + 1);
  } else if (results_.given() < accounted_) {
    own.owed = board.completed();
    own.promised = own.owed - 1;
  }
  board.records().give(own.owed, board.completed());
}

std::shared_ptr<Call> PartialAllreduce::start_flush(Seconds limit) {
  engine_->check();
  if (open_flush_) return open_flush_;
  if (closed_) throw_closed();
  std::shared_ptr<Call> call = new_call();
  call->flush = true;
  call->sequence = sequence_;
  naming_the_dead([&] {
    Lock lock = enter(limit);
    call->epoch = board_->round().state().flushes;
    board_->ranks().own().flush_waits = true;
    open_flush_ = call;
    do_leave(lock, false);
  });
  if (leader_) engine_->advance();
  return call;
}

void PartialAllreduce::close() {
  engine_->check();
  if (closed_.exchange(true)) return;
  if (!device_) {
    leave_for_good();
  } else if (is_served()) {
    try {
      leave_for_good();
    } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): of a collective that this rank needs no more
    }
  }
  if (leader_ || device_) engine_->advance();
  if (device_) engine_->work_in_background();  // frees the device's memory once no rank of the node uses it
}

std::size_t PartialAllreduce::discard() {
  if (!engine_->is_in_own_process()) return 0;  // in a fork: the data belongs to the parent
  const std::size_t in_the_making = handover_ && handover_->claim() ? 1 : 0;
  aborted_ = true;
  const Lock lock = reenter();
  BoardSlot& own = board_->ranks().own();
  const std::size_t contributions = own.deposit == kNoBuffer ? 0 : own.contributions;
  board_->buffers().release(own.deposit);
  return contributions + in_the_making;
}

void PartialAllreduce::abort() {  // under the engine's lock
  try {
    discard();
    if (!closed_.exchange(true) && is_served()) leave_for_good();
  } catch (const RankFailedError&) {
    closed_ = true;  // the board is lost to all ranks of the node
  } catch (const DeviceError&) {
    closed_ = true;  // every rank of the node gets the error from the board
  }
}

}  // namespace pyc
