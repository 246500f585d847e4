#include "services/parameter_server/shard.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "core/checked.h"
#include "services/parameter_server/streaming.h"

namespace pyc::server {
namespace {

constexpr std::size_t kPipelineBytes = in_pages(sizeof(Pipeline::Shared));

std::size_t slots_bytes(std::size_t workers) { return in_pages(workers * sizeof(Shard::Slot)); }

std::size_t journal_bytes(std::size_t workers) { return sizeof(Shard::Journal) + workers * sizeof(Shard::JournalTerm); }

/// With a block of the weights, of the states, and of the slot.
std::size_t saved_bytes(const Layout& layout) {
  return in_pages(sizeof(Shard::SavedBlock)) + (2 + layout.options().update.states()) * Shard::kBlockBytes;
}

/// A server makes one update after the other.
std::size_t journal_count(const Layout& layout) {
  if (!layout.options().recoverable) return 0;
  return layout.options().direct ? Pipeline::kTickets : 1;
}

std::size_t writers(const Layout& layout) {
  if (!layout.options().recoverable) return 0;
  return layout.options().direct ? layout.workers() : 1;
}

/// Before the weights.
std::size_t before_bytes(const Layout& layout) {
  return kPipelineBytes + slots_bytes(layout.workers()) +
         in_pages(journal_count(layout) * journal_bytes(layout.workers())) + writers(layout) * saved_bytes(layout);
}

Pipeline::Shared& pipeline_at(std::byte* memory, bool first) {
  return first ? *::new (memory) Pipeline::Shared : *reinterpret_cast<Pipeline::Shared*>(memory);
}

}  // namespace

std::size_t Shard::bytes(const Layout& layout, std::size_t shard) {
  const std::size_t ranges = 1 + layout.options().update.states() + kRoles * layout.workers();
  return before_bytes(layout) + ranges * in_pages(layout.count(shard) * layout.wide_bytes());
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
      weights_(shared + before_bytes(layout)),
      pipeline_(pipeline_at(shared, first), (count_ + block_count_ - 1) / block_count_) {
  std::byte* next = weights_ + stride_;
  for (; states_.size() < layout.options().update.states(); next += stride_) states_.push_back(next);
  buffers_ = next;
  constexpr std::uint32_t kFirstRoles = 0U | 1U << 2U | 2U << 4U;
  constexpr std::size_t kHugePage = std::size_t{2} << 20U;
  // An update passes through tens of megabytes, so ask for huge pages.
  if (stride_ >= kHugePage) madvise(weights_, Shard::bytes(layout, shard) - before_bytes(layout), MADV_HUGEPAGE);
  std::byte* at = shared + kPipelineBytes + slots_bytes(workers_);
  const std::size_t count = journal_count(layout);
  for (std::size_t i = 0; i < count; ++i, at += journal_bytes(workers_)) {
    auto* const head = first ? ::new (at) Journal{} : reinterpret_cast<Journal*>(at);
    journals_.push_back({head, reinterpret_cast<JournalTerm*>(head + 1)});
  }
  at += in_pages(count * journal_bytes(workers_)) - count * journal_bytes(workers_);
  for (std::size_t i = 0; i < writers(layout); ++i, at += saved_bytes(layout)) {
    auto* const head = first ? ::new (at) SavedBlock{} : reinterpret_cast<SavedBlock*>(at);
    saved_.push_back({head, at + in_pages(sizeof(SavedBlock))});
  }
  for (Worker w = 0; first && w < workers_; ++w) {
    ::new (slots_ + w) Slot{.full = {},
                            .taken = {},
                            .awaited = {},
                            .offer = {},
                            .work = {},
                            .roles = kFirstRoles,
                            .gathered = {},
                            .used = {}};
  }
}

void Shard::start(const std::byte* weights) { memory_.load(elements_, weights_, weights, count_); }

void Shard::resume(const Resumed& resumed, const std::byte* arrays, std::size_t distance) {
  std::memcpy(weights_, arrays, count_ * wide_);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::memcpy(states_[i], arrays + (i + 1) * distance * wide_, count_ * wide_);
  }
  pipeline_.begin_at(resumed.version);
  for (Worker w = 0; w < workers_; ++w) {
    slots_[w].full.store(resumed.clocks[w]);
    slots_[w].taken.store(resumed.clocks[w]);
    slots_[w].used.store(resumed.clocks[w]);
  }
}

void Shard::copy_arrays(std::byte* out) const {
  std::memcpy(out, weights_, count_ * wide_);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::memcpy(out + (i + 1) * count_ * wide_, states_[i], count_ * wide_);
  }
}

// ------------------------------------------------------------------------------------------------ included pushes

void Shard::note(Step& step) const {
  if (step.has_gradient()) {
    auto& [first, second] = slots_[step.worker].gathered;
    if (step.use) {
      (step.next ? second : first) = step.clock;
    } else if (second != 0) {
      second = step.clock;  // discarded, and earlier ones are not used yet
    } else if (first != 0) {
      first = step.clock;
    } else {
      note_used(step.worker, step.clock);
    }
  }
  for (Part& part : step.parts) {
    Clock& first = slots_[part.worker].gathered[0];
    part.newest = step.keep ? first : std::exchange(first, 0);
  }
  for (Worker w = 0; step.turn && w < workers_; ++w) {
    auto& [first, second] = slots_[w].gathered;
    first = std::exchange(second, 0);
  }
}

void Shard::note_used(Worker worker, Clock clock) const {
  std::atomic<Clock>& used = slots_[worker].used;
  Clock before = used.load();
  while (clock > before && !used.compare_exchange_weak(before, clock)) {
  }
}

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

// ------------------------------------------------------------------------------------------------ the journal

void Shard::write_journal(std::size_t writer, const Ticket& ticket, Version update, const std::vector<Part>& parts,
                          const std::vector<Term>& terms, std::optional<Worker> own) const {
  const JournalMemory& written = journal(ticket.number);
  Journal& head = *written.head;
  head.number.store(0);
  head.completer.store(kNoRank);
  head.ticket = ticket;
  head.update = update;
  head.writer = writer;
  head.terms = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].worker == own) continue;
    const auto offset = static_cast<std::size_t>(terms[i].values - buffers_);
    written.terms[head.terms++] = {.part = parts[i], .offset = offset};
  }
  head.number.store(ticket.number, std::memory_order_release);
}

void Shard::save(std::uint64_t ticket, std::size_t block) const {
  const JournalMemory& written = journal(ticket);
  const SavedMemory& saved = saved_[written.head->writer];
  const std::size_t start = first(block) * wide_, bytes = length(block) * wide_;
  saved.head->block.store(0);
  saved.head->number.store(ticket);
  std::byte* to = saved.values;
  std::memcpy(to, weights_ + start, bytes);
  for (const std::byte* state : states_) std::memcpy(to += kBlockBytes, state + start, bytes);
  if (rule_.is_elastic() && written.head->terms > 0) {
    std::memcpy(to + kBlockBytes, buffers_ + written.terms->offset + start, bytes);
  }
  saved.head->block.store(block + 1, std::memory_order_release);
}

/// If the writer has begun to change the block.
void Shard::restore(const JournalMemory& journal, std::size_t block) const {
  const auto& [head, values] = saved_[journal.head->writer];
  if (head->number.load() != journal.head->ticket.number || head->block.load() != block + 1) return;
  const std::size_t start = first(block) * wide_, bytes = length(block) * wide_;
  const std::byte* from = values;
  std::memcpy(weights_ + start, from, bytes);
  for (std::byte* state : states_) std::memcpy(state + start, from += kBlockBytes, bytes);
  if (rule_.is_elastic() && journal.head->terms > 0) {
    std::memcpy(buffers_ + journal.terms->offset + start, from + kBlockBytes, bytes);
  }
}

bool Shard::complete_update(std::uint64_t number, Rank rank, const std::vector<Rank>& dead) {
  const JournalMemory& written = journal(number);
  Journal& head = *written.head;
  Rank by = head.completer.load();
  const bool is_free = by == kNoRank || std::ranges::find(dead, by) != dead.end();
  const bool begins = is_free && head.completer.compare_exchange_strong(by, rank);
  if (!begins && by != rank) return false;
  std::size_t block = pipeline_.blocks_passed(head.ticket);
  if (begins) restore(written, block);
  const std::vector<Term> terms = terms_of(written);
  const std::size_t before = block;
  for (; block < pipeline_.blocks() && pipeline_.may_enter(head.ticket, block); ++block) {
    save(number, block);
    apply(block, terms, head.update);
    for (std::size_t i = 0; block + 1 == pipeline_.blocks() && i < head.terms; ++i) {
      note_used(written.terms[i].part.worker, written.terms[i].part.newest);
    }
    pipeline_.passed(head.ticket, block);
  }
  return block != before;
}

/// Elastic averaging has one term, which it changes too.
void Shard::apply(std::size_t block, const std::vector<Term>& terms, Version number) {
  if (terms.empty()) return;
  if (rule_.is_elastic()) {
    average(block, buffers_ + (terms.front().values - buffers_));
  } else {
    update(block, terms, number);
  }
}

std::vector<Term> Shard::terms_of(const JournalMemory& journal) const {
  std::vector<Term> terms;
  for (std::size_t i = 0; i < journal.head->terms; ++i) {
    const auto& [part, offset] = journal.terms[i];
    terms.push_back({buffers_ + offset, part.weight});
  }
  return terms;
}

void Shard::clear_accumulators(Worker worker, std::size_t first_block) const {
  const std::size_t start = std::min(first(first_block), count_) * wide_;
  for (const bool second : {false, true}) std::memset(accumulator(worker, second) + start, 0, count_ * wide_ - start);
}

void Shard::clear_slot(Worker worker, std::size_t first, std::size_t end) {
  std::byte* const from = incoming(worker) + first * wide_;
  if (rule_.is_elastic()) {
    std::memcpy(from, weights_ + first * wide_, (end - first) * wide_);
  } else {
    std::memset(from, 0, (end - first) * wide_);
  }
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
