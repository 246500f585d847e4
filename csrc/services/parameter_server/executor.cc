#include "services/parameter_server/executor.h"

#include <algorithm>

#include "core/error.h"
#include "services/parameter_server/known.h"

namespace pyc::server {

void Executor::resume(const Resumed& resumed) {
  const std::size_t shard = known(layout_.shard_of(rank_));
  const std::size_t begin = layout_.first(shard), end = layout_.first(shard + 1);
  for (Resumed::Part part : resumed.parts) {
    part.first = std::max(part.first, begin);
    part.end = std::min(part.end, end);
    if (part.first >= part.end) continue;
    part.first -= begin;
    part.end -= begin;
    parts_.push_back(std::move(part));
  }
  for (auto& each : is_void_) each.resize(layout_.workers());
}

bool Executor::advance() {
  bool moved = false;
  while (!steps_.empty()) {
    Step& step = steps_.front();
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
      const bool done = calls_ ? call(step) : work(step);
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

void Executor::grant(Step& step) {
  const bool is_own = step.is_used_up() && step.parts.size() == 1;
  if (step.use && !is_own) throw InternalError("work that no worker can do alone");
  const double weight = step.use ? step.parts.front().weight : 0;
  shard_.note(step);
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
bool Executor::take(Step& step) {
  shard_.note(step);
  if (!step.has_gradient()) return false;
  if (!step.use) return true;  // unused: `end` marks it as taken
  bool adds = step.adds;
  if (!parts_.empty()) {
    adds = adds && !is_void_[step.next ? 1 : 0][step.worker];
    const bool is_void = is_included(step);
    if (is_void && adds) {
      set_taken(step);
      return false;
    }
    is_void_[step.next ? 1 : 0][step.worker] = is_void;
  }
  if (step.is_used_up()) return true;
  if (adds) {
    std::byte* const accumulator = shard_.accumulator(step.worker, step.next);
    for (std::size_t b = 0; b < shard_.pipeline().blocks(); ++b) shard_.gather_slot(b, accumulator, step.worker);
  } else {
    shard_.exchange(step.worker, Shard::Role::kSlot, step.next ? Shard::Role::kSecond : Shard::Role::kFirst);
  }
  set_taken(step);
  return false;
}

/// Whether all parts include the push. If some do, clears them in the slot.
bool Executor::is_included(const Step& step) {
  const auto includes = [&step](const Resumed::Part& part) { return step.clock <= part.included[step.worker]; };
  if (std::ranges::all_of(parts_, includes)) return true;
  for (const Resumed::Part& part : parts_) {
    if (includes(part)) shard_.clear_slot(step.worker, part.first, part.end);
  }
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
  journal_parts_.clear();
  for (const Part& part : step.parts) {
    if (!parts_.empty() && is_void_[0][part.worker]) continue;
    if (keeps_journal_) journal_parts_.push_back(part);
    const bool is_in_slot = step.use && in_slot_ && part.worker == step.worker;
    terms_.push_back({is_in_slot ? shard_.incoming(part.worker) : shard_.accumulator(part.worker), part.weight});
  }
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): `enter` has taken it
  if (keeps_journal_) shard_.write_journal(0, *ticket_, step.update, journal_parts_, terms_, {});
  ring_for_version();
  return true;
}

bool Executor::work(const Step& step) {
  Pipeline& pipeline = shard_.pipeline();
  const Ticket& ticket = known(ticket_);
  const std::size_t end = std::min(block_ + kBlocksAtOnce, pipeline.blocks());
  for (; block_ < end && pipeline.may_enter(ticket, block_); ++block_) {
    if (keeps_journal_) shard_.save(ticket.number, block_);
    shard_.apply(block_, terms_, step.update);
    if (block_ + 1 == pipeline.blocks()) shard_.note_used(step);
    pipeline.passed(ticket, block_);
  }
  return block_ == pipeline.blocks();
}

/// `work` by the update function, which gets the whole shard. After an exception it is not called again and changes
/// nothing. Everything else continues, so that no rank waits indefinitely, and readers see that the weights are broken.
bool Executor::call(const Step& step) {
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
  shard_.note_used(step);
  pipeline.passed_all(ticket);
  block_ = pipeline.blocks();
  return true;
}

void Executor::end(const Step& step) {
  if (in_slot_) set_taken(step);
  if (step.turn) {
    shard_.turn();
    is_void_[0] = is_void_[1];
  }
  taken_ = in_slot_ = begun_ = false;
  ticket_.reset();
}

}  // namespace pyc::server
