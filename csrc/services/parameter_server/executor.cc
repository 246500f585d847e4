#include "services/parameter_server/executor.h"

#include <algorithm>

#include "core/error.h"
#include "services/parameter_server/known.h"

namespace pyc::server {

bool Executor::advance() {
  bool moved = false;
  while (!steps_.empty()) {
    const Step& step = steps_.front();
    if (!taken_ && claim(step)) {
      if (step.update != 0 && !enter(layout_.options().workers[step.worker])) return moved;
      grant(step);
      moved = true;
      continue;
    }
    if (!taken_) {
      if (step.has_gradient() && shard_.slot(step.worker).full.load(std::memory_order_acquire) < step.clock) {
        return moved;
      }
      moved = true;
      taken_ = true;
      in_slot_ = take(step);
    }
    if (step.update != 0) {
      if (!begun_ && !begin_update(step)) return moved;
      const std::size_t before = block_;
      const bool done = calls_ ? call() : work(step);
      moved = moved || block_ != before;
      if (!done) return moved;
    }
    end(step);
    steps_.pop_front();
  }
  return moved;
}

/// Whether the worker does the work itself. After a claim it cannot take its offer back.
bool Executor::claim(const Step& step) {
  if (!claimed_) claimed_ = step.has_gradient() && shard_.claim_work(step.worker, step.clock);
  return claimed_;
}

void Executor::grant(const Step& step) {
  const bool is_own = step.is_used_up() && step.parts.size() == 1;
  if (step.use && !is_own) throw InternalError("work that no worker can do alone");
  const double weight = step.use ? step.parts.front().weight : 0;
  shard_.grant_work(step.worker, step.clock, {ticket_.value_or(Ticket{}), step.update, weight});
  ring_(step.worker);
  if (ticket_) ring_for_version();
  ticket_.reset();
  claimed_ = false;
  steps_.pop_front();
}

bool Executor::enter(Rank owner) {
  if (!ticket_) ticket_ = shard_.pipeline().enter(true, owner);
  return ticket_.has_value();
}

/// Takes the gradient out of the slot unless the update reads it there. Returns whether it stays in the slot.
bool Executor::take(const Step& step) {
  if (!step.has_gradient()) return false;
  if (!step.use) return true;  // unused: `end` marks it as taken
  if (step.is_used_up()) return true;
  if (step.adds) {
    std::byte* const accumulator = shard_.accumulator(step.worker, step.next);
    for (std::size_t b = 0; b < shard_.pipeline().blocks(); ++b) shard_.gather_slot(b, accumulator, step.worker);
  } else {
    shard_.exchange(step.worker, Shard::Role::kSlot, step.next ? Shard::Role::kSecond : Shard::Role::kFirst);
  }
  set_taken(step);
  return false;
}

void Executor::set_taken(const Step& step) {
  shard_.slot(step.worker).taken.store(step.clock, std::memory_order_release);
  ring_(step.worker);
}

/// Called after an update has begun. Released workers sleep until they can take a ticket for reading that version.
void Executor::ring_for_version() {
  for (Worker w = 0; w < layout_.workers(); ++w) {
    const Version awaited = shard_.slot(w).awaited.load();
    if (awaited != 0 && awaited <= shard_.pipeline().version()) ring_(w);
  }
}

bool Executor::begin_update(const Step& step) {
  if (!enter(rank_)) return false;
  begun_ = true;
  block_ = 0;
  terms_.clear();
  for (const Part& part : step.parts) {
    const bool is_in_slot = step.use && in_slot_ && part.worker == step.worker;
    terms_.push_back({is_in_slot ? shard_.incoming(part.worker) : shard_.accumulator(part.worker), part.weight});
  }
  ring_for_version();
  return true;
}

bool Executor::work(const Step& step) {
  Pipeline& pipeline = shard_.pipeline();
  const Ticket& ticket = known(ticket_);
  const std::size_t end = std::min(block_ + kBlocksAtOnce, pipeline.blocks());
  for (; block_ < end && pipeline.may_enter(ticket, block_); ++block_) {
    if (layout_.options().update.rule == Rule::kElastic) {
      for (const Part& part : step.parts) shard_.average(block_, shard_.incoming(part.worker));
    } else if (!terms_.empty()) {
      shard_.update(block_, terms_, step.update);
    }
    pipeline.passed(ticket, block_);
  }
  return block_ == pipeline.blocks();
}

/// `work` by the update function, which gets the whole shard. After an exception it is not called again and changes
/// nothing. Everything else continues, so that no rank waits indefinitely, and readers see that the weights are broken.
bool Executor::call() {
  Pipeline& pipeline = shard_.pipeline();
  const Ticket& ticket = known(ticket_);
  if (!is_calling_ && !pipeline.may_enter(ticket, pipeline.blocks() - 1)) return false;
  if (!is_calling_ && !terms_.empty() && !calls_->has_thrown()) {
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) shard_.sum(b, terms_, calls_->gradient());
    calls_->ask(shard_.weights());
    is_calling_ = true;
  }
  if (!calls_->is_done()) return false;
  is_calling_ = false;
  if (calls_->has_thrown()) pipeline.break_by(rank_);
  pipeline.passed_all(ticket);
  block_ = pipeline.blocks();
  return true;
}

void Executor::end(const Step& step) {
  if (in_slot_) set_taken(step);
  if (step.turn) shard_.turn();
  taken_ = in_slot_ = begun_ = false;
  ticket_.reset();
}

}  // namespace pyc::server
