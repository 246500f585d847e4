#include "services/parameter_server/shard.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "core/checked.h"
#include "services/parameter_server/streaming.h"

namespace pyc::server {
namespace {

constexpr std::size_t kPipelineBytes = in_pages(sizeof(Pipeline::Shared));

std::size_t slots_bytes(std::size_t workers) { return in_pages(workers * sizeof(Shard::Slot)); }

Pipeline::Shared& pipeline_at(std::byte* memory, bool first) {
  return first ? *::new (memory) Pipeline::Shared : *reinterpret_cast<Pipeline::Shared*>(memory);
}

}  // namespace

std::size_t Shard::bytes(const Layout& layout, std::size_t shard) {
  const std::size_t states = UpdateRule(layout.options().update, layout.elements().accumulator).states();
  const std::size_t ranges = 1 + states + kRoles * layout.workers();
  return kPipelineBytes + slots_bytes(layout.workers()) + ranges * in_pages(layout.count(shard) * layout.wide_bytes());
}

Shard::Shard(Memory& memory, const Layout& layout, std::size_t shard, std::byte* shared, bool first)
    : memory_(memory),
      elements_(layout.elements()),
      wide_(layout.wide_bytes()),
      count_(layout.count(shard)),
      block_count_(kBlockBytes / wide_),
      stride_(in_pages(count_ * wide_)),
      workers_(layout.workers()),
      rule_(layout.options().update, elements_.accumulator),
      sum_(memory, {elements_.accumulator, elements_.accumulator}),
      scratch_(memory.allocate(kBlockBytes)),
      slots_(reinterpret_cast<Slot*>(shared + kPipelineBytes)),
      weights_(shared + kPipelineBytes + slots_bytes(layout.workers())),
      pipeline_(pipeline_at(shared, first), (count_ + block_count_ - 1) / block_count_) {
  std::byte* next = weights_ + stride_;
  for (; states_.size() < rule_.states(); next += stride_) states_.push_back(next);
  buffers_ = next;
  constexpr std::uint32_t kFirstRoles = 0U | 1U << 2U | 2U << 4U;
  constexpr std::size_t kHugePage = std::size_t{2} << 20U;
  // An update passes through tens of megabytes, so ask for huge pages.
  if (stride_ >= kHugePage)
    madvise(weights_, Shard::bytes(layout, shard) - kPipelineBytes - slots_bytes(workers_), MADV_HUGEPAGE);
  for (Worker w = 0; first && w < workers_; ++w) {
    ::new (slots_ + w) Slot{.full = {}, .taken = {}, .awaited = {}, .offer = {}, .work = {}, .roles = kFirstRoles};
  }
}

void Shard::start(const std::byte* weights) { memory_.load(elements_, weights_, weights, count_); }

/// One process at a time exchanges buffers, and never the slot while its worker looks for it.
void Shard::exchange(Worker worker, Role a, Role b) const {
  const std::uint32_t roles = slots_[worker].roles.load();
  const std::uint32_t differ = place(roles, a) ^ place(roles, b);
  slots_[worker].roles.store(roles ^ (differ << (2 * static_cast<std::uint32_t>(a))) ^
                             (differ << (2 * static_cast<std::uint32_t>(b))));
}

bool Shard::claim_work(Worker worker, Clock clock) const {
  Clock offered = offer(clock, Offer::kMade);
  std::atomic<Clock>& is_offered = slots_[worker].offer;
  return is_offered.load() == offered && is_offered.compare_exchange_strong(offered, offer(clock, Offer::kClaimed));
}

void Shard::grant_work(Worker worker, Clock clock, const Work& work) const {
  slots_[worker].work = work;  // not read before the grant
  slots_[worker].offer.store(offer(clock, Offer::kGranted));
}

void Shard::turn() const {
  for (Worker w = 0; w < workers_; ++w) exchange(w, Role::kFirst, Role::kSecond);
}

std::byte* Shard::keep(Worker worker, std::size_t block, const std::byte* gradient) const {
  std::byte* const kept = incoming(worker);
  const std::size_t start = std::min(first(block), count_) * size_of(elements_.type);
  std::memcpy(kept + start, gradient + start, count_ * size_of(elements_.type) - start);
  return kept;
}

void Shard::gather(std::size_t block, std::byte* accumulator, const std::byte* values, bool add) {
  std::byte* const into = accumulator + first(block) * wide_;
  const std::byte* const from = values + first(block) * size_of(elements_.type);
  if (add) {
    memory_.accumulate(elements_, ReduceOp::kSum, into, from, length(block));
  } else {
    memory_.load(elements_, into, from, length(block));
  }
}

void Shard::gather_slot(std::size_t block, std::byte* accumulator, Worker worker) {
  const std::size_t start = first(block) * wide_;
  memory_.reduce({elements_.accumulator, elements_.accumulator}, ReduceOp::kSum, accumulator + start,
                 incoming(worker) + start, length(block));
}

/// Works in parts that stay in the first-level cache.
void Shard::update(std::size_t block, const std::vector<Term>& terms, Version number, std::byte* out) {
  const bool plain = terms.size() == 1 && terms.front().weight == 1;
  const std::size_t end = first(block) + length(block);
  if (plain && out != nullptr && rule_.is_plain() && !elements_.widened()) {
    const std::size_t start = first(block) * wide_;
    return rule_.apply_and_give(weights_ + start, terms.front().values + start, out + start, length(block));
  }
  for (std::size_t at = first(block); at < end; at += sum_.longest_block()) {
    const std::size_t count = std::min(sum_.longest_block(), end - at);
    const std::byte* const gradient = plain ? terms.front().values + at * wide_ : sum_.block(terms, at, count);
    std::array<std::byte*, 2> states{};
    for (std::size_t i = 0; i < states_.size(); ++i) states.at(i) = states_[i] + at * wide_;
    rule_.apply(weights_ + at * wide_, states.data(), gradient, count, number);
    if (out != nullptr) give(weights_, at, count, out);
  }
}

void Shard::sum(std::size_t block, const std::vector<Term>& terms, std::byte* into) {
  const std::size_t end = first(block) + length(block);
  for (std::size_t at = first(block); at < end; at += sum_.longest_block()) {
    const std::size_t count = std::min(sum_.longest_block(), end - at);
    memory_.copy(into + at * wide_, sum_.block(terms, at, count), count * wide_);
  }
}

void Shard::average(std::size_t block, std::byte* weights) {
  const std::size_t start = first(block) * wide_;
  rule_.average(weights_ + start, weights + start, length(block));
}

void Shard::average(std::size_t block, const std::byte* values, std::byte* result) {
  const std::size_t start = first(block) * size_of(elements_.type);
  memory_.load(elements_, scratch_.get(), values + start, length(block));
  rule_.average(weights_ + first(block) * wide_, scratch_.get(), length(block));
  memory_.store(elements_, result + start, scratch_.get(), length(block), 1);
}

void Shard::give(const std::byte* from, std::size_t at, std::size_t count, std::byte* out) const {
  const std::byte* const values = from + at * wide_;
  std::byte* const into = out + at * size_of(elements_.type);
  if (elements_.widened()) return memory_.store(elements_, into, values, count, 1);
  stream_copy(into, values, count * wide_);
}

}  // namespace pyc::server
