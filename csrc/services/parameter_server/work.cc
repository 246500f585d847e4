#include "services/parameter_server/work.h"

#include <algorithm>
#include <utility>

#include "core/relax.h"

namespace pyc::server {

Work::Work(Shard& shard, const Layout& layout, Step step, Pipeline::Turn& turn, const UpdateCall* call,
           std::optional<Worker> owner)
    : shard_(shard),
      layout_(&layout),
      step_(std::move(step)),
      ticket_(turn.enter(step_.update != 0)),
      call_(call),
      owner_(owner) {
  const bool is_used_up = step_.is_used_up() && !layout.elements().widened();
  for (const Part& part : step_.parts) {
    if (is_used_up && part.worker == step_.worker) in_place_ = terms_.size();
    terms_.push_back({shard_.accumulator(part.worker), part.weight});
  }
  if (step_.use && !in_place_) accumulator_ = shard_.accumulator(step_.worker, step_.next);
  write_journal();
}

Work::Work(Shard& shard, const Layout& layout, Ticket ticket, std::byte* out)
    : shard_(shard), layout_(&layout), ticket_(ticket), out_(out) {}

/// For an update by gradients of others too.
void Work::write_journal() {
  const std::optional<Worker> own = step_.has_gradient() ? std::optional(step_.worker) : std::nullopt;
  const bool is_own = terms_.size() == 1 && step_.parts.front().worker == own;
  has_journal_ = layout_->options().recoverable && owner_ && call_ == nullptr && !terms_.empty() && !is_own;
  if (has_journal_) shard_.write_journal(*owner_, ticket_, step_.update, step_.parts, terms_, own);
}

void Work::lend(const std::byte* gradient, std::byte* out) {
  use(gradient);
  out_ = out;
}

void Work::use(const std::byte* gradient) {
  gradient_ = gradient;
  if (in_place_) terms_[*in_place_].values = gradient;
}

/// In elastic averaging, the averaged weights so far move to the accumulator, where the rest will be.
void Work::leave() {
  if (gradient_ != nullptr) {
    std::byte* const reply = shard_.accumulator(step_.worker);
    for (std::size_t b = 0; is_elastic() && out_ != nullptr && b < block_; ++b) shard_.gather(b, reply, out_, false);
    use(shard_.keep(step_.worker, block_, gradient_));
  }
  out_ = nullptr;
}

// ------------------------------------------------------------------------------------------------ blocks

bool Work::advance(std::size_t most) {
  Pipeline& pipeline = shard_.pipeline();
  for (std::size_t n = 0; n < most && block_ < pipeline.blocks() && is_free(); ++n, ++block_) {
    if (has_journal_) shard_.save(ticket_.number, block_);
    act(block_);
    if (block_ + 1 == pipeline.blocks()) shard_.note_used(step_);
    pipeline.passed(ticket_, block_);
  }
  return block_ == pipeline.blocks();
}

/// Follows earlier work in strides. Otherwise faster work would wait for each block of slower work.
bool Work::is_free() {
  constexpr int kLooks = 200;
  if (block_ < free_) return true;
  const Pipeline& pipeline = shard_.pipeline();
  wanted_ = calls() ? pipeline.blocks() - 1 : pipeline.end_of_stride(block_);
  for (int looks = 0; !pipeline.may_enter(ticket_, wanted_); ++looks) {
    if (looks == kLooks) return false;
    relax();
  }
  free_ = wanted_ + 1;
  return true;
}

void Work::act(std::size_t block) {
  if (is_elastic()) return average(block);
  if (calls()) {
    if (block == 0) call();
  } else {
    if (accumulator_ != nullptr) shard_.gather(block, accumulator_, gradient_, step_.adds);
    if (!terms_.empty()) return shard_.update(block, terms_, step_.update, out_);
  }
  if (out_ != nullptr) shard_.read(block, out_);
}

/// The averaged weights go to the caller, or to the accumulator for a later `pull`. Without a push, reads the center.
void Work::average(std::size_t block) {
  if (gradient_ == nullptr) {
    if (out_ != nullptr) shard_.read(block, out_);
  } else if (out_ != nullptr) {
    shard_.average(block, gradient_, out_);
  } else {
    shard_.gather(block, shard_.accumulator(step_.worker), gradient_, false);
    shard_.average(block, shard_.accumulator(step_.worker));
  }
}

/// Earlier work is done, and the whole shard is this rank's until the function returns.
void Work::call() {
  for (std::size_t b = 0; b < shard_.pipeline().blocks(); ++b) {
    if (accumulator_ != nullptr) shard_.gather(b, accumulator_, gradient_, step_.adds);
    if (!terms_.empty()) shard_.sum(b, terms_, call_->gradient.get());
  }
  if (terms_.empty()) return;
  try {
    call_->function(shard_.weights(), call_->gradient.get());
  } catch (...) {
    error_ = std::current_exception();
  }
}

}  // namespace pyc::server
