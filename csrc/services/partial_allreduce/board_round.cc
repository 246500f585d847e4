#include "services/partial_allreduce/board_round.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hot.h"

namespace pyc {

BoardRound::BoardRound(BoardMemory& memory, const BoardShape& shape, BoardMutex* mutex, EventCount* events,
                       BoardRanks& ranks, BoardRecords& records, BoardBuffers& buffers, const JointSum& joint_sum)
    : shape_(shape),
      mutex_(mutex),
      events_(events),
      ranks_(ranks),
      records_(records),
      buffers_(buffers),
      joint_sum_(joint_sum),
      shared_(memory.take<Shared>(1)),
      inputs_(memory.take<Input>(shape.local_ranks())),
      members_(memory.take<std::uint64_t>(shape.member_words())),
      shares_(memory.take<RoundShare>(shape.local_ranks())) {}

// ------------------------------------------------------------------------------------------------ taking data

PYC_HOT void BoardRound::arrive() {
  ranks_.arrive();
  // Arrivals during the grace do not change the initiator, whose arrival made the round possible.
  if (state().grace_ends <= 0) state().newest_arrival = ranks_.own_local_rank();
}

void BoardRound::give_grace(Seconds now, Seconds length) {
  state().grace_ends = now + length;
  shared_->grace.store(length, std::memory_order_relaxed);
  events_->ring();  // waiting ranks must look for its end, which does not ring
}

PYC_HOT void BoardRound::start(Rank initiator) {
  State& s = state();
  s.phase = Phase::kStarted;
  s.initiator = initiator;
  s.started_at = trace_.now();
  if (s.grace_ends > 0) shared_->grace.store(0, std::memory_order_relaxed);
  s.grace_ends = 0;
  s.part = {};
  s.awaited = 0;
  std::fill_n(members_, shape_.member_words(), 0);
  for (Rank i = 0; i < ranks_.count(); ++i) {
    const BoardSlot& slot = ranks_[i];
    shares_[i] = RoundShare{};
    const bool lacks = shape_.max_staleness && slot.lacking >= *shape_.max_staleness && slot.deposit == kNoBuffer;
    if (lacks && !ranks_.left().contains(i)) {
      ++s.awaited;
    } else {
      take(i);
    }
  }
  settle();
}

void BoardRound::take_own() {
  --state().awaited;
  take(ranks_.own_local_rank());
  settle();
}

PYC_HOT void BoardRound::take(Rank local, Data data) {
  State& s = state();
  BoardSlot& slot = ranks_[local];
  slot.taken = true;
  if (ranks_.left().contains(local)) ++s.part.left;
  if (ranks_.closed().contains(local)) ++s.part.closed;
  if (data == Data::kDeposit && slot.deposit == kNoBuffer) {
    ++slot.lacking;
    return;
  }
  const RoundNumber round = records_.completed();
  slot.lacking = 0;
  ++s.part.contributors;
  if (slot.fresh_for == round) ++s.part.active;
  Rank counted = 0;
  if (shape_.track_members) insert(members_, shape_.ranks[static_cast<std::size_t>(local)], counted);
  shares_[local] = {slot.newest, round - slot.handed_over_at};
  if (data == Data::kDeposit) inputs_[s.inputs++] = {.buffer = std::exchange(slot.deposit, kNoBuffer)};
  slot.contributions = 0;
}

bool BoardRound::may_join() const {
  return is_awaited(ranks_.own_local_rank()) && state().batch == 0 &&
         ranks_[ranks_.own_local_rank()].deposit == kNoBuffer;
}

JointSum::Joined BoardRound::join() {
  State& s = state();
  if (s.sum == kNoBuffer) {
    s.sum = buffers_.take();
    s.sum_is_filled = false;
  }
  if (s.adding++ == 0) ++s.generation;
  --s.awaited;
  take(ranks_.own_local_rank(), Data::kJoins);
  settle();
  return {.sum = buffers_.data(s.sum), .generation = s.generation, .is_filled = s.sum_is_filled};
}

/// Another rank was adding to each left-over piece, so every piece has data when no rank is adding.
void BoardRound::finish_joining(BufferNumber left_over) {
  State& s = state();
  if (--s.adding == 0) s.sum_is_filled = true;
  if (left_over != kNoBuffer) inputs_[s.inputs++] = {left_over, ranks_.own_local_rank()};
}

/// Ends the wait for data if no rank is awaited, and marks the totals that need the oldest record.
PYC_HOT void BoardRound::settle() {
  State& s = state();
  if (s.awaited > 0) return;
  s.phase = Phase::kTaken;
  const RoundNumber old = records_.oldest().round;
  if (!shape_.keeps_totals || old == kNoRound) return;
  for (Rank i = 0; i < ranks_.count(); ++i) {
    if (ranks_[i].given > old || ranks_[i].owed <= old) continue;
    ranks_[i].folding = true;
    s.must_fold = true;
  }
}

// ------------------------------------------------------------------------------------------------ the reduction

PYC_HOT bool BoardRound::begin_batch() {
  State& s = state();
  const bool taken = s.phase == Phase::kTaken;
  if (s.batch > 0 || s.adding > 0 || s.inputs == 0 || (!taken && s.inputs == 1 && s.sum == kNoBuffer)) return false;
  if (s.sum == kNoBuffer) {
    // Reduce in place into a deposit that its owner does not read. The only deposit of a round on a single node is the
    // result unchanged, since no rank writes to it.
    const bool stays = taken && s.inputs == 1 && shape_.is_alone();
    auto* const alone = std::find_if(inputs_, inputs_ + s.inputs,
                                     [&](const Input& i) { return stays || buffers_.references(i.buffer) == 1; });
    s.sum_is_filled = alone != inputs_ + s.inputs;
    if (s.sum_is_filled) {
      s.sum = std::exchange(*alone, inputs_[--s.inputs]).buffer;
    } else {
      s.sum = buffers_.take();
    }
  }
  if (s.inputs == 0) return false;
  s.batch = s.inputs;
  s.segments = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, round_up(shape_.buffer_bytes(), shape_.segment_bytes) / shape_.segment_bytes));
  shared_->segments_done.store(0, std::memory_order_relaxed);
  shared_->cursor.store((static_cast<std::uint64_t>(++s.batches) << 32U) + s.segments, std::memory_order_release);
  return true;
}

PYC_HOT void BoardRound::finish_batch() {
  State& s = state();
  if (s.batch == 0 || shared_->segments_done.load(std::memory_order_acquire) < s.segments) return;
  for (std::uint32_t i = 0; i < s.batch; ++i) buffers_.release(inputs_[i].buffer);
  std::copy(inputs_ + s.batch, inputs_ + s.inputs, inputs_);
  s.inputs -= s.batch;
  s.batch = 0;
  s.sum_is_filled = true;
}

PYC_HOT bool BoardRound::work(std::unique_lock<BoardMutex>& lock, ReductionMemory& memory) {
  State& s = state();
  for (;;) {
    finish_batch();
    if (s.phase != Phase::kTaken) return false;
    const bool folds = std::exchange(s.must_fold, false);
    s.folding = s.folding || folds;
    const bool wakes = begin_batch() && s.segments > 1;
    if (s.batch == 0 && !folds) return is_reduced();
    lock.unlock();
    if (wakes) events_->ring();  // waiting ranks may help
    const bool helped = help(memory);
    if (folds) fold(memory);
    lock.lock();
    if (folds) {
      s.folding = false;
      events_->ring();  // waiting ranks may take their totals
    }
    if (!helped && !folds) return false;  // the last of the other ranks continues
  }
}

PYC_HOT bool BoardRound::help(ReductionMemory& memory) {
  std::uint64_t cursor = shared_->cursor.load(std::memory_order_acquire);
  if (static_cast<std::uint32_t>(cursor) == 0) return false;
  const Seconds begin = trace_.now();
  const RoundNumber round = records_.completed();
  bool helped = false;
  while (static_cast<std::uint32_t>(cursor) > 0) {
    if (!shared_->cursor.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
      continue;
    }
    reduce_segment(memory, static_cast<std::uint32_t>(cursor) - 1);
    shared_->segments_done.fetch_add(1, std::memory_order_acq_rel);
    helped = true;
    cursor = shared_->cursor.load(std::memory_order_acquire);
  }
  if (helped) trace_.add("reduce", begin, round);
  return helped;
}

/// Reads, without the mutex, only state that does not change while a segment of this batch is unfinished.
PYC_HOT void BoardRound::reduce_segment(ReductionMemory& memory, std::uint32_t segment) {
  const State& s = state();
  const std::size_t element = size_of(shape_.elements.accumulator);
  const std::size_t end = std::min(shape_.buffer_bytes(), (segment + 1) * shape_.segment_bytes);
  std::size_t bytes = 0;
  for (std::size_t first = segment * shape_.segment_bytes; first < end; first += bytes) {
    bytes = std::min(shape_.block_bytes, end - first);
    if (joint_sum_.on()) bytes = std::min(bytes, joint_sum_.end_of_piece(first) - first);
    std::byte* const into = buffers_.data(s.sum) + first;
    if (!s.sum_is_filled) memory.copy(into, buffers_.data(inputs_[0].buffer) + first, bytes);
    for (std::uint32_t i = s.sum_is_filled ? 0 : 1; i < s.batch; ++i) {
      const Input& input = inputs_[i];
      if (input.left_over_of != kNoRank && !joint_sum_.is_left_over(input.left_over_of, first)) continue;
      memory.reduce(shape_.elements, shape_.op, into, buffers_.data(input.buffer) + first, bytes / element);
    }
  }
}

PYC_HOT bool BoardRound::is_reduced() const {
  const State& s = state();
  return s.phase == Phase::kTaken && s.inputs == 0 && s.adding == 0 && !s.must_fold && !s.folding;
}

/// Adds the oldest record, which will be evicted, to the totals of ranks that have not received it.
void BoardRound::fold(ReductionMemory& memory) {
  const RoundRecord& old = records_.oldest();  // kept until `complete`; its data may go earlier, if a rank leaves
  for (Rank i = 0; i < ranks_.count(); ++i) {
    BoardSlot& slot = ranks_[i];
    std::unique_lock lock(*mutex_);
    if (!slot.folding) continue;
    if (slot.owed <= old.round) {
      slot.folding = false;
      continue;
    }
    BufferNumber data = old.buffer;
    if (data != kNoBuffer) {
      buffers_.retain(data);
      const bool fresh = slot.total.buffer == kNoBuffer;
      // This rank may die during the addition: then the former total must be whole.
      BufferNumber total = fresh || shape_.recoverable ? buffers_.take() : slot.total.buffer;
      lock.unlock();
      if (fresh) {
        memory.fill_identity(shape_.elements, shape_.op, buffers_.data(total), shape_.count);
      } else if (shape_.recoverable) {
        memory.copy(buffers_.data(total), buffers_.data(slot.total.buffer), shape_.buffer_bytes());
      }
      memory.add(shape_.elements, buffers_.data(total), buffers_.data(data), shape_.count,
                 shape_.op == ReduceOp::kAvg ? old.contributors : 1);
      lock.lock();
      buffers_.release(data);
      if (total != slot.total.buffer) {
        std::swap(total, slot.total.buffer);
        buffers_.release(total);
      }
    }
    slot.total.upto = old.round + 1;
    slot.folding = false;
  }
}

// ------------------------------------------------------------------------------------------------ the end

PYC_HOT void BoardRound::complete(const Outcome& outcome) {
  State& s = state();
  if (s.started_at > 0) trace_.add("round", s.started_at, records_.completed());
  records_.evict_oldest();
  if (outcome.contributors == 0) buffers_.release(s.sum);
  records_.add({.round = records_.completed(),
                .initiator = outcome.initiator,
                .contributors = outcome.contributors,
                .active = outcome.active,
                .flush = outcome.flush,
                .buffer = std::exchange(s.sum, kNoBuffer)},
               members_, shares_);
  if (outcome.flush) ++s.flushes;
  ranks_.end_round(outcome.flush);
  s.initiator = s.newest_arrival = kNoRank;
  s.phase = outcome.last ? Phase::kEnded : Phase::kArmed;
  shared_->ended.store(outcome.last, std::memory_order_release);
  records_.count_round();
  events_->ring();
}

void BoardRound::abandon(const Outcome& outcome) {
  ranks_.end_round(outcome.flush);
  if (outcome.last) state().phase = Phase::kEnded;
  shared_->ended.store(outcome.last, std::memory_order_release);
  events_->ring();
}

}  // namespace pyc
