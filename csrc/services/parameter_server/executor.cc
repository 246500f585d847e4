#include "services/parameter_server/executor.h"

#include <algorithm>

#include "services/parameter_server/known.h"

namespace pyc::server {
namespace {

/// Blocks of one `advance`: other collectives want the thread too.
constexpr std::size_t kBlocksAtOnce = 64;

}  // namespace

bool Executor::advance() {
  bool moved = false;
  while (!steps_.empty()) {
    const Step& step = steps_.front();
    if (!taken_) {
      if (step.has_gradient() && shard_.slot(step.worker).full.load(std::memory_order_acquire) < step.clock) {
        return moved;
      }
      moved = true;
      taken_ = true;
      in_slot_ = take(step);
    }
    if (step.update != 0) {
      if (!ticket_ && !begin_update(step)) return moved;
      const std::size_t before = block_;
      const bool done = work(step);
      moved = moved || block_ != before;
      if (!done) return moved;
    }
    end(step);
    steps_.pop_front();
  }
  return moved;
}

/// Whether the gradient stays in its slot, from where the update uses it.
bool Executor::take(const Step& step) {
  if (!step.has_gradient()) return false;
  if (!step.use) return true;  // nobody uses it: `end` says that it is taken
  const bool updates =
      std::any_of(step.parts.begin(), step.parts.end(), [&](const Part& part) { return part.worker == step.worker; });
  if (updates && !step.adds && !step.next && !step.keep) return true;
  if (step.adds) {
    std::byte* const accumulator = shard_.accumulator(step.worker, step.next);
    for (std::size_t b = 0; b < shard_.pipeline().blocks(); ++b) shard_.gather_slot(b, accumulator, step.worker);
  } else {
    shard_.exchange(step.worker, Shard::Role::kSlot, step.next ? Shard::Role::kSecond : Shard::Role::kFirst);
  }
  shard_.slot(step.worker).taken.store(step.clock, std::memory_order_release);
  return false;
}

bool Executor::begin_update(const Step& step) {
  ticket_ = shard_.pipeline().enter(true, rank_);
  if (!ticket_) return false;
  block_ = 0;
  terms_.clear();
  for (const Part& part : step.parts) {
    const bool is_in_slot = step.use && in_slot_ && part.worker == step.worker;
    terms_.push_back({is_in_slot ? shard_.incoming(part.worker) : shard_.accumulator(part.worker), part.weight});
  }
  return true;
}

/// Whether the update is done.
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

void Executor::end(const Step& step) {
  if (in_slot_) shard_.slot(step.worker).taken.store(step.clock, std::memory_order_release);
  if (step.turn) shard_.turn();
  taken_ = in_slot_ = false;
  ticket_.reset();
}

}  // namespace pyc::server
