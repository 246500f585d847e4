#include "services/parameter_server/granted_work.h"

#include <vector>

namespace pyc::server {

bool GrantedWork::is_granted() {
  if (!is_granted_ && shard_->is_granted(push_.worker, push_.clock)) {
    work_ = shard_->work_of(push_.worker);
    is_granted_ = true;
  }
  return is_granted_;
}

bool GrantedWork::advance(std::size_t most) {
  if (work_.update == 0) return true;
  Pipeline& pipeline = shard_->pipeline();
  std::vector<Term> terms(1, {nullptr, 1});
  for (std::size_t n = 0; n < most && block_ < pipeline.blocks(); ++n, ++block_) {
    if (block_ >= free_) {
      wanted_ = pipeline.end_of_stride(block_);
      if (!pipeline.may_enter(work_.ticket, wanted_)) return false;
      free_ = wanted_ + 1;
    }
    terms.front().values = weighed(block_);
    shard_->update(block_, terms, work_.update, out_);
    if (block_ + 1 == pipeline.blocks()) shard_->note_used(push_.worker, push_.clock);
    pipeline.passed(work_.ticket, block_);
  }
  return block_ == pipeline.blocks();
}

/// The gradient of this block, times its weight. It is scaled in the slot, because the server's thread may be using the
/// shard's buffers for sums.
const std::byte* GrantedWork::weighed(std::size_t block) {
  if (is_lent() && work_.weight == 1 && !elements_.widened()) return gradient_;
  std::byte* const slot = shard_->incoming(push_.worker);
  if (is_lent()) shard_->gather(block, slot, gradient_, false);
  if (work_.weight != 1) {
    const std::size_t start = shard_->first(block) * size_of(elements_.accumulator);
    memory_->scale(elements_.accumulator, slot + start, shard_->length(block), work_.weight);
  }
  return slot;
}

void GrantedWork::leave() {
  std::byte* const slot = shard_->incoming(push_.worker);
  for (std::size_t b = block_; b < shard_->pipeline().blocks(); ++b) shard_->gather(b, slot, gradient_, false);
  gradient_ = nullptr;
  out_ = nullptr;
}

bool GrantedWork::advance_left(std::size_t most) {
  if (is_granted()) return advance(most);
  if (!shard_->take_offer_back(push_.worker, push_.clock)) return false;  // it will soon be granted
  shard_->slot(push_.worker).full.store(push_.clock, std::memory_order_release);
  return true;
}

}  // namespace pyc::server
