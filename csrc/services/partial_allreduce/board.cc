#include "services/partial_allreduce/board.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "hot/hot.h"

namespace pyc {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;  // of a segment: stays in the first-level cache
constexpr std::size_t kRunsInFlight = 3;                    // between nodes, which send from their buffers

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void insert(std::uint64_t* set, Rank rank, Rank& members) {
  std::uint64_t& word = set[static_cast<std::size_t>(rank) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  if ((word & bit) == 0) ++members;
  word |= bit;
}

std::size_t words_for(std::size_t members) { return (members + 63) / 64; }

}  // namespace

/// Of each rank: a deposit, one that a round has taken, one being written, two results that the application looks at
/// and one that it gets instead, two that are kept for it; a total, and the records that it adds up. Then the records,
/// the sum being reduced, and what goes between the nodes.
std::size_t Board::buffer_count(const BoardShape& shape) {
  const std::size_t per_rank = 8 + (shape.keeps_totals ? 1 + shape.records : 0);
  const std::size_t buffers = checked_product(per_rank, shape.places()) + shape.records + 1 + kRunsInFlight;
  if (buffers > static_cast<std::size_t>(std::numeric_limits<BufferNumber>::max())) {
    throw std::length_error("history: a board cannot number " + std::to_string(buffers) + " buffers");
  }
  return buffers;
}

/// Calls `take(pointer, count)` for everything shared, in the order in which it lies; `board` may be null.
template <class Take>
void Board::lay_out(const BoardShape& shape, Board* board, Take take) {
  const std::size_t places = shape.places();
  const std::size_t place_words = words_for(places);
  const std::size_t member_words = shape.track_members ? words_for(static_cast<std::size_t>(shape.size)) : 0;
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
      const RecordView view{take(static_cast<Record*>(nullptr), 1),
                            take(static_cast<std::uint64_t*>(nullptr), member_words),
                            take(static_cast<Share*>(nullptr), shares)};
      if (b != nullptr) (b->*member).push_back(view);
    }
  };
  array(&Board::header_, 1);
  array(&Board::places_, places);
  array(&Board::arrived_, place_words);
  array(&Board::left_, place_words);
  array(&Board::closed_, place_words);
  array(&Board::references_, buffers);
  array(&Board::free_, buffers);
  array(&Board::inputs_, places);
  array(&Board::members_, member_words);
  array(&Board::shares_, places);
  views(&Board::records_, shape.records, places);
  views(&Board::kept_, places, 1);
  views(&Board::flushed_, places, 1);
  array(&Board::reports_, static_cast<std::size_t>(shape.size));  // the only one as long as there are ranks
}

std::size_t Board::bytes(const BoardShape& shape) {
  std::size_t total = 0;
  lay_out(shape, nullptr, [&]<class T>(T*, std::size_t count) -> T* {
    total = round_up(total, kLine) + count * sizeof(T);
    return nullptr;
  });
  const std::size_t buffer = round_up(checked_product(shape.count, size_of(shape.elements.accumulator)), kLine);
  return round_up(total, kPage) + checked_product(buffer_count(shape), buffer);
}

Board::Board(std::shared_ptr<SharedMemory> memory, const BoardShape& shape, Rank place, bool first)
    : memory_(std::move(memory)),
      shape_(shape),
      place_(place),
      place_words_(words_for(shape.places())),
      member_words_(shape.track_members ? words_for(static_cast<std::size_t>(shape.size)) : 0),
      stride_(round_up(shape.buffer_bytes(), kLine)) {
  if (memory_->bytes() < bytes(shape)) throw InternalError("the board's memory is too small");
  std::size_t used = 0;
  lay_out(shape, this, [&]<class T>(T*, std::size_t count) -> T* {
    used = round_up(used, kLine);
    T* const at = reinterpret_cast<T*>(memory_->data() + used);
    used += count * sizeof(T);
    // Reports are 0 at first, as the memory is: their pages are touched when somebody asks for them.
    if (first && !std::is_same_v<T, Report>) std::uninitialized_value_construct_n(at, count);
    return at;
  });
  buffers_ = memory_->data() + round_up(used, kPage);
  if (!first) return;
  if (shape.places() > 1) bell().check();
  State& s = state();
  s.free = static_cast<std::uint32_t>(buffer_count(shape));
  for (std::uint32_t i = 0; i < s.free; ++i) free_[i] = static_cast<BufferNumber>(s.free - 1 - i);
}

void Board::add_to(Footprint& footprint) const {
  footprint.add(this);
  footprint.add(header_);
  footprint.add(&places_[place_]);
  footprint.add(records_.data(), sizeof(RecordView));
  const RecordView& record = records_.front();  // the only one, unless results are summed
  footprint.add(record.record);
  footprint.add(record.members, member_words_ * sizeof *record.members);
  footprint.add(&record.shares[place_]);
  footprint.add(&kept_[static_cast<std::size_t>(place_)]);
  footprint.add(references_, shape_.places() * sizeof *references_);
}

// ------------------------------------------------------------------------------------------------ who is there

PYC_HOT void Board::arrive() {
  State& s = state();
  insert(arrived_, place_, s.arrivals);
  // Grace does not move the initiator: it is the rank whose arrival made the round possible.
  if (s.grace_ends <= 0) s.newest_arrival = place_;
}

void Board::leave(bool for_good) {
  State& s = state();
  insert(left_, place_, s.leavers);
  if (for_good) insert(closed_, place_, s.closers);
}

// ------------------------------------------------------------------------------------------------ buffers

PYC_HOT BufferNumber Board::take_buffer() {
  State& s = state();
  if (s.free == 0) throw InternalError("the board has no free buffer");
  const BufferNumber buffer = free_[--s.free];
  references_[buffer] = 1;
  return buffer;
}

PYC_HOT void Board::release(BufferNumber& buffer) {
  if (buffer == kNoBuffer) return;
  if (--references_[buffer] == 0) free_[state().free++] = buffer;
  buffer = kNoBuffer;
}

// ------------------------------------------------------------------------------------------------ the round

PYC_HOT void Board::start(Rank initiator) {
  State& s = state();
  s.phase = Phase::kStarted;
  s.initiator = initiator;
  s.grace_ends = 0;
  s.part = {};
  s.awaited = 0;
  std::fill_n(members_, member_words_, 0);
  for (Rank i = 0; i < static_cast<Rank>(places()); ++i) {
    const Place& p = places_[i];
    shares_[i] = Share{};
    const bool lacks = shape_.max_staleness && p.lacking >= *shape_.max_staleness && p.deposit == kNoBuffer;
    if (lacks && !left().contains(i)) {
      ++s.awaited;
    } else {
      take(i);
    }
  }
  settle();
}

void Board::take_own() {
  --state().awaited;
  take(place_);
  settle();
}

PYC_HOT void Board::take(Rank place) {
  State& s = state();
  Place& p = places_[place];
  p.taken = true;
  if (left().contains(place)) ++s.part.left;
  if (closed().contains(place)) ++s.part.closed;
  if (p.deposit == kNoBuffer) {
    ++p.lacking;
    return;
  }
  const RoundNumber round = completed();
  p.lacking = 0;
  ++s.part.contributors;
  if (p.fresh_for == round) ++s.part.active;
  Rank counted = 0;
  if (member_words_ > 0) insert(members_, shape_.ranks[static_cast<std::size_t>(place)], counted);
  shares_[place] = {p.newest, round - p.handed_over_at};
  inputs_[s.inputs++] = std::exchange(p.deposit, kNoBuffer);
  p.contributions = 0;
}

/// Nobody is awaited any more: the rest can be done at once.
PYC_HOT void Board::settle() {
  State& s = state();
  if (s.awaited > 0) return;
  s.phase = Phase::kTaken;
  const RoundNumber old = oldest().record->round;
  if (!shape_.keeps_totals || old == kNoRound) return;
  for (Rank i = 0; i < static_cast<Rank>(places()); ++i) {
    if (places_[i].given > old || places_[i].owed <= old) continue;
    places_[i].folding = true;
    s.must_fold = true;
  }
}

PYC_HOT bool Board::begin_batch() {
  State& s = state();
  const bool taken = s.phase == Phase::kTaken;
  if (s.batch > 0 || s.inputs == 0 || (!taken && s.inputs == 1 && s.sum == kNoBuffer)) return false;
  if (s.sum == kNoBuffer) {
    // In place on a deposit that its owner does not read at this moment. One that stays alone and that nobody will
    // write to is the result as it is.
    const bool stays = taken && s.inputs == 1 && shape_.is_alone();
    auto* const alone =
        std::find_if(inputs_, inputs_ + s.inputs, [&](BufferNumber b) { return stays || references_[b] == 1; });
    s.sum_is_filled = alone != inputs_ + s.inputs;
    if (s.sum_is_filled) {
      s.sum = std::exchange(*alone, inputs_[--s.inputs]);
    } else {
      s.sum = take_buffer();
    }
  }
  if (s.inputs == 0) return false;
  s.batch = s.inputs;
  s.segments = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, round_up(shape_.buffer_bytes(), shape_.segment_bytes) / shape_.segment_bytes));
  header_->segments_done.store(0, std::memory_order_relaxed);
  header_->cursor.store((static_cast<std::uint64_t>(++s.batches) << 32U) + s.segments, std::memory_order_release);
  return true;
}

PYC_HOT void Board::finish_batch() {
  State& s = state();
  if (s.batch == 0 || header_->segments_done.load(std::memory_order_acquire) < s.segments) return;
  for (std::uint32_t i = 0; i < s.batch; ++i) release(inputs_[i]);
  std::copy(inputs_ + s.batch, inputs_ + s.inputs, inputs_);
  s.inputs -= s.batch;
  s.batch = 0;
  s.sum_is_filled = true;
}

PYC_HOT bool Board::work(std::unique_lock<RobustMutex>& lock, Memory& memory) {
  State& s = state();
  for (;;) {
    finish_batch();
    if (s.phase != Phase::kTaken) return false;
    const bool folds = std::exchange(s.must_fold, false);
    s.folding = s.folding || folds;
    const bool wakes = begin_batch() && s.segments > 1;
    if (s.batch == 0 && !folds) return is_reduced();
    lock.unlock();
    if (wakes) bell().ring();  // who waits may help
    const bool helped = help(memory);
    if (folds) fold(memory);
    lock.lock();
    if (folds) {
      s.folding = false;
      bell().ring();  // those behind may be given their totals
    }
    if (!helped && !folds) return false;  // others are at it: the last of them goes on
  }
}

PYC_HOT bool Board::help(Memory& memory) {
  bool helped = false;
  std::uint64_t cursor = header_->cursor.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(cursor) > 0) {
    if (!header_->cursor.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
      continue;
    }
    reduce_segment(memory, static_cast<std::uint32_t>(cursor) - 1);
    header_->segments_done.fetch_add(1, std::memory_order_acq_rel);
    helped = true;
    cursor = header_->cursor.load(std::memory_order_acquire);
  }
  return helped;
}

/// Reads parts of the state that do not change while a segment of this batch is not done.
PYC_HOT void Board::reduce_segment(Memory& memory, std::uint32_t segment) {
  const State& s = state();
  const std::size_t element = size_of(shape_.elements.accumulator);
  const std::size_t end = std::min(shape_.buffer_bytes(), (segment + 1) * shape_.segment_bytes);
  for (std::size_t first = segment * shape_.segment_bytes; first < end; first += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, end - first);
    std::byte* const into = data(s.sum) + first;
    if (!s.sum_is_filled) memory.copy(into, data(inputs_[0]) + first, bytes);
    for (std::uint32_t i = s.sum_is_filled ? 0 : 1; i < s.batch; ++i) {
      memory.reduce(shape_.elements, shape_.op, into, data(inputs_[i]) + first, bytes / element);
    }
  }
}

PYC_HOT bool Board::is_reduced() const {
  const State& s = header_->state;
  return s.phase == Phase::kTaken && s.inputs == 0 && !s.must_fold && !s.folding;
}

PYC_HOT void Board::complete(const Outcome& outcome) {
  State& s = state();
  const RoundNumber round = completed();
  RecordView& view = oldest();
  evict(view);
  if (outcome.contributors == 0) release(s.sum);
  *view.record = {.round = round,
                  .initiator = outcome.initiator,
                  .contributors = outcome.contributors,
                  .active = outcome.active,
                  .flush = outcome.flush,
                  .buffer = std::exchange(s.sum, kNoBuffer)};
  std::copy_n(members_, member_words_, view.members);
  std::copy_n(shares_, places(), view.shares);
  if (outcome.flush) {
    ++s.flushes;
    std::copy_n(closed_, place_words_, left_);
    s.leavers = s.closers;
  }
  for (std::uint32_t i = 0; i < places(); ++i) places_[i].taken = false;
  s.initiator = s.newest_arrival = kNoRank;
  std::fill_n(arrived_, place_words_, 0);
  s.arrivals = 0;
  s.phase = outcome.last ? Phase::kEnded : Phase::kArmed;
  header_->ended.store(outcome.last, std::memory_order_release);
  header_->completed.store(round + 1, std::memory_order_release);
  bell().ring();
}

// ------------------------------------------------------------------------------------------------ completed rounds

PYC_HOT const Board::RecordView* Board::record_of(RoundNumber round) {
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

PYC_HOT const Board::Share& Board::share(const RecordView& view) const {
  const auto own = static_cast<std::size_t>(place_);
  const bool kept_for_one = &view == &kept_[own] || &view == &flushed_[own];
  return view.shares[kept_for_one ? 0 : place_];
}

void Board::keep(RecordView& into, const RecordView& from, Rank place, bool with_data) {
  drop(into);
  places_[place].keeps = true;
  *into.record = *from.record;
  std::copy_n(from.members, member_words_, into.members);
  into.shares[0] = from.shares[place];
  if (!with_data) into.record->buffer = kNoBuffer;
  if (into.record->buffer != kNoBuffer) retain(into.record->buffer);
}

PYC_HOT void Board::drop(RecordView& view) {
  release(view.record->buffer);
  view.record->round = kNoRound;
}

PYC_HOT void Board::drop_kept(RoundNumber before) {
  if (!own().keeps) return;
  own().keeps = false;
  for (RecordView* const view : {&kept(), &flushed()}) {
    if (view->record->round == kNoRound) continue;
    if (view->record->round < before) {
      drop(*view);
    } else {
      own().keeps = true;
    }
  }
}

/// Keeps the record for the ranks that it was promised to, and frees its place.
PYC_HOT void Board::evict(RecordView& view) {
  if (view.record->round == kNoRound) return;
  const bool with_data = !shape_.keeps_totals;  // else it is in a total
  for (Rank i = 0; i < static_cast<Rank>(places()); ++i) {
    const Place& p = places_[i];
    const auto index = static_cast<std::size_t>(i);
    if (p.promised == view.record->round) keep(kept_[index], view, i, with_data);
    if (p.flush_waits && view.record->flush) keep(flushed_[index], view, i, with_data);
  }
  drop(view);
}

void Board::fail(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    header_->rank_failed = dynamic_cast<const RankFailedError*>(&thrown) != nullptr;
    std::snprintf(header_->failure, sizeof header_->failure, "%s", thrown.what());
  }
  header_->failed.store(true, std::memory_order_release);
  bell().ring();
}

void Board::check_failure() const {
  if (!header_->failed.load(std::memory_order_acquire)) return;
  const std::string text = "rank " + std::to_string(shape_.ranks.front()) +
                           ", which exchanges this node's messages with other nodes: " + header_->failure;
  if (header_->rank_failed) throw RankFailedError(text);
  throw TransportError(text);
}

/// Adds the oldest record, which is to make room, to the totals of ranks that have not been given it.
void Board::fold(Memory& memory) {
  const Record& old = *oldest().record;  // stays until `complete`
  for (std::uint32_t i = 0; i < places(); ++i) {
    Place& p = places_[i];
    std::unique_lock lock(mutex());
    if (!p.folding) continue;
    const bool fresh = old.buffer != kNoBuffer && p.total.buffer == kNoBuffer;
    if (fresh) p.total.buffer = take_buffer();
    const BufferNumber total = p.total.buffer;
    lock.unlock();
    if (old.buffer != kNoBuffer) {
      if (fresh) memory.fill_identity(shape_.elements, shape_.op, data(total), shape_.count);
      memory.add(shape_.elements, data(total), data(old.buffer), shape_.count,
                 shape_.op == ReduceOp::kAvg ? old.contributors : 1);
    }
    lock.lock();
    p.total.upto = old.round + 1;
    p.folding = false;
  }
}

}  // namespace pyc
