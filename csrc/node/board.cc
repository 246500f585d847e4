#include "node/board.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kChunkBytes = std::size_t{64} << 10U;  // what a rank reduces at a time
constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;   // ... so that the output stays in the first-level cache

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void insert(std::uint64_t* set, Rank rank, Rank& members) {
  std::uint64_t& word = set[static_cast<std::size_t>(rank) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  if ((word & bit) == 0) ++members;
  word |= bit;
}

}  // namespace

/// Of each rank: a deposit, one being written, two results that the application looks at, two that are kept for it, and
/// a total; the records; the one being reduced.
std::size_t Board::buffer_count(const BoardShape& shape) {
  const auto ranks = static_cast<std::size_t>(shape.size);
  return ranks * (shape.keeps_totals ? 7 : 6) + shape.records + 2;
}

/// Calls `take(pointer, count)` for everything shared, in the order in which it lies; `board` may be null.
template <class Take>
void Board::lay_out(const BoardShape& shape, Board* board, Take take) {
  const auto ranks = static_cast<std::size_t>(shape.size);
  const std::size_t words = (ranks + 63) / 64;
  const std::size_t buffers = buffer_count(shape);
  Board* const b = board;
  const auto array = [&](auto Board::* member, std::size_t count) {
    using Pointer = std::remove_reference_t<decltype(b->*member)>;
    const Pointer at = take(Pointer{nullptr}, count);
    if (b != nullptr) b->*member = at;
  };
  const auto views = [&](std::vector<RecordView> Board::* member, std::size_t count, std::size_t shares) {
    if (b != nullptr) (b->*member).clear();
    for (std::size_t i = 0; i < count; ++i) {
      const RecordView view{take(static_cast<Record*>(nullptr), 1), take(static_cast<std::uint64_t*>(nullptr), words),
                            take(static_cast<Share*>(nullptr), shares)};
      if (b != nullptr) (b->*member).push_back(view);
    }
  };
  array(&Board::header_, 1);
  array(&Board::places_, ranks);
  array(&Board::arrived_, words);
  array(&Board::left_, words);
  array(&Board::closed_, words);
  array(&Board::references_, buffers);
  array(&Board::free_, buffers);
  array(&Board::inputs_, ranks);
  array(&Board::members_, words);
  array(&Board::shares_, ranks);
  array(&Board::running_, 1);
  views(&Board::records_, shape.records, ranks);
  views(&Board::kept_, ranks, 1);
  views(&Board::flushed_, ranks, 1);
}

std::size_t Board::bytes(const BoardShape& shape) {
  std::size_t total = 0;
  lay_out(shape, nullptr, [&]<class T>(T*, std::size_t count) -> T* {
    total = round_up(total, kLine) + count * sizeof(T);
    return nullptr;
  });
  return round_up(total, kPage) + buffer_count(shape) * round_up(shape.buffer_bytes(), kLine);
}

Board::Board(std::shared_ptr<SharedMemory> memory, const BoardShape& shape, Rank rank, bool first)
    : memory_(std::move(memory)),
      shape_(shape),
      rank_(rank),
      words_((static_cast<std::size_t>(shape.size) + 63) / 64),
      stride_(round_up(shape.buffer_bytes(), kLine)) {
  if (memory_->bytes() < bytes(shape)) throw InternalError("the board's memory is too small");
  std::size_t used = 0;
  lay_out(shape, this, [&]<class T>(T*, std::size_t count) -> T* {
    used = round_up(used, kLine);
    T* const at = reinterpret_cast<T*>(memory_->data() + used);
    used += count * sizeof(T);
    if (first) std::uninitialized_default_construct_n(at, count);
    return at;
  });
  buffers_ = memory_->data() + round_up(used, kPage);
  if (!first) return;
  State& s = state();
  s.free = static_cast<std::uint32_t>(buffer_count(shape));
  for (std::uint32_t i = 0; i < s.free; ++i) free_[i] = static_cast<BufferNumber>(s.free - 1 - i);
}

void Board::arrive(Rank rank) { insert(arrived_, rank, state().arrivals); }

void Board::leave(Rank rank, bool for_good) {
  insert(left_, rank, state().leavers);
  if (!for_good) return;
  insert(closed_, rank, state().closers);
  header_->closers.store(state().closers, std::memory_order_release);
}

const Board::RecordView* Board::record_of(RoundNumber round) {
  const RecordView& view = records_[round % records_.size()];
  if (view.record->round == round) return &view;
  return kept().record->round == round ? &kept() : nullptr;
}

const Board::RecordView& Board::flush_record() {
  const RecordView* newest = &flushed();
  for (const RecordView& view : records_) {
    const bool counts = view.record->round != kNoRound && view.record->flush;
    if (counts && (newest->record->round == kNoRound || view.record->round > newest->record->round)) newest = &view;
  }
  if (newest->record->round == kNoRound) throw InternalError("the record of a flush round was not kept");
  return *newest;
}

const Board::Share& Board::share(const RecordView& view) const {
  const auto own = static_cast<std::size_t>(rank_);
  const bool kept_for_one = view.record == kept_[own].record || view.record == flushed_[own].record;
  return view.shares[kept_for_one ? 0 : rank_];
}

BufferNumber Board::take_buffer() {
  State& s = state();
  if (s.free == 0) throw InternalError("the board has no free buffer");
  const BufferNumber buffer = free_[--s.free];
  references_[buffer] = 1;
  return buffer;
}

void Board::release(BufferNumber& buffer) {
  if (buffer == kNoBuffer) return;
  if (--references_[buffer] == 0) free_[state().free++] = buffer;
  buffer = kNoBuffer;
}

Board::Work Board::begin_round(Rank initiator) {
  State& s = state();
  s.phase = Phase::kCombining;
  s.combiner = rank_;
  Record& r = *running_;
  r = Record{.round = completed(), .initiator = initiator};
  std::fill_n(members_, words_, 0);
  s.inputs = 0;
  Rank members = 0;
  for (Rank rank = 0; rank < shape_.size; ++rank) {
    Place& p = places_[rank];
    shares_[rank] = Share{};
    if (p.deposit == kNoBuffer) {
      ++p.lacking;
      continue;
    }
    p.lacking = 0;
    insert(members_, rank, members);
    if (p.fresh_for == r.round) ++r.active;
    shares_[rank] = {p.newest, r.round - p.handed_over_at};
    inputs_[s.inputs++] = std::exchange(p.deposit, kNoBuffer);
    p.contributions = 0;
  }
  r.contributors = s.inputs;
  r.flush = s.leavers == shape_.size;
  s.output = s.inputs > 0 ? inputs_[0] : kNoBuffer;

  Work work;
  const Record& oldest = *records_[r.round % records_.size()].record;
  if (shape_.keeps_totals && oldest.round != kNoRound) {
    for (Rank rank = 0; rank < shape_.size; ++rank) {
      if (places_[rank].given > oldest.round || closed().contains(rank)) continue;
      places_[rank].folding = true;
      work.behind.push_back(rank);
    }
  }
  if (s.inputs < 2 || shape_.buffer_bytes() == 0) return work;
  // In place on a deposit that its owner does not read at this moment.
  const auto alone = std::find_if(inputs_, inputs_ + s.inputs, [this](BufferNumber b) { return references_[b] == 1; });
  if (alone != inputs_ + s.inputs) {
    std::iter_swap(inputs_, alone);
    s.output = inputs_[0];
  } else {
    s.output = take_buffer();
  }
  s.chunks = static_cast<std::uint32_t>((shape_.buffer_bytes() + kChunkBytes - 1) / kChunkBytes);
  header_->chunks_done.store(0, std::memory_order_relaxed);
  header_->cursor.store((static_cast<std::uint64_t>(static_cast<std::uint32_t>(r.round + 1)) << 32U) + s.chunks,
                        std::memory_order_release);
  work.reduction = true;
  return work;
}

bool Board::help(Memory& memory) {
  bool helped = false;
  std::uint64_t cursor = header_->cursor.load(std::memory_order_acquire);
  for (;;) {
    const auto round = static_cast<std::uint32_t>(cursor >> 32U);
    const auto left = static_cast<std::uint32_t>(cursor);
    if (round != static_cast<std::uint32_t>(completed() + 1) || left == 0) return helped;
    if (!header_->cursor.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
      continue;
    }
    reduce_chunk(memory, left - 1);
    header_->chunks_done.fetch_add(1, std::memory_order_acq_rel);
    cursor = header_->cursor.load(std::memory_order_acquire);
    helped = true;
  }
}

void Board::reduce_chunk(Memory& memory, std::uint32_t chunk) {
  const State& s = state();
  const std::size_t element = size_of(shape_.elements.accumulator);
  const std::size_t end = std::min(shape_.buffer_bytes(), (chunk + 1) * kChunkBytes);
  for (std::size_t first = chunk * kChunkBytes; first < end; first += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, end - first);
    std::byte* const into = data(s.output) + first;
    if (s.output != inputs_[0]) memory.copy(into, data(inputs_[0]) + first, bytes);
    for (std::uint32_t i = 1; i < s.inputs; ++i) {
      memory.reduce(shape_.elements, shape_.op, into, data(inputs_[i]) + first, bytes / element);
    }
  }
}

void Board::work(Memory& memory, const Work& work) {
  if (work.reduction) reduce(memory);
  if (!work.behind.empty()) fold(memory, work.behind);
}

void Board::reduce(Memory& memory) {
  if (state().chunks > 1) bell().ring();  // who waits may help
  help(memory);
  while (header_->chunks_done.load(std::memory_order_acquire) < state().chunks) sched_yield();
}

void Board::keep(RecordView& into, const RecordView& from, Rank rank, bool with_data) {
  drop(into);
  *into.record = *from.record;
  std::copy_n(from.members, words_, into.members);
  into.shares[0] = from.shares[rank];
  if (!with_data) into.record->buffer = kNoBuffer;
  if (into.record->buffer != kNoBuffer) retain(into.record->buffer);
}

void Board::drop(RecordView& view) {
  release(view.record->buffer);
  view.record->round = kNoRound;
}

/// Keeps the record for the ranks that it was promised to, and frees its place.
void Board::evict(RecordView& view) {
  if (view.record->round == kNoRound) return;
  const bool with_data = !shape_.keeps_totals;  // else it is in a total
  for (Rank rank = 0; rank < shape_.size; ++rank) {
    const Place& p = places_[rank];
    const auto index = static_cast<std::size_t>(rank);
    if (p.promised == view.record->round) keep(kept_[index], view, rank, with_data);
    if (p.flush_waits && view.record->flush) keep(flushed_[index], view, rank, with_data);
  }
  drop(view);
}

void Board::end_round() {
  State& s = state();
  RecordView& view = records_[running_->round % records_.size()];
  evict(view);
  for (std::uint32_t i = 0; i < s.inputs; ++i) {
    if (inputs_[i] != s.output) release(inputs_[i]);
  }
  running_->buffer = std::exchange(s.output, kNoBuffer);
  *view.record = *running_;
  std::copy_n(members_, words_, view.members);
  std::copy_n(shares_, shape_.size, view.shares);
  if (running_->flush) {
    ++s.flushes;
    std::copy_n(closed_, words_, left_);
    s.leavers = s.closers;
  }
  s.started = false;
  s.initiator = s.newest_arrival = s.combiner = kNoRank;
  s.grace_ends = 0;
  std::fill_n(arrived_, words_, 0);
  s.arrivals = 0;
  s.phase = s.closers == shape_.size ? Phase::kEnded : Phase::kArmed;
  header_->completed.store(running_->round + 1, std::memory_order_release);
  bell().ring();
}

/// Adds the oldest record to the running totals of the ranks that are behind.
void Board::fold(Memory& memory, const std::vector<Rank>& behind) {
  const Record& oldest = *records_[running_->round % records_.size()].record;  // ours until `end_round`
  for (const Rank rank : behind) {
    Place& p = places_[rank];
    Total& total = p.total;
    if (oldest.buffer != kNoBuffer) {
      std::unique_lock lock(mutex());
      const bool fresh = total.buffer == kNoBuffer;
      if (fresh) total.buffer = take_buffer();
      std::byte* const sum = data(total.buffer);
      lock.unlock();
      if (fresh) memory.fill_identity(shape_.elements, shape_.op, sum, shape_.count);
      memory.add(shape_.elements, sum, data(oldest.buffer), shape_.count,
                 shape_.op == ReduceOp::kAvg ? oldest.contributors : 1);
    }
    const std::lock_guard lock(mutex());
    total.upto = oldest.round + 1;
    p.folding = false;
  }
}

}  // namespace pyc
