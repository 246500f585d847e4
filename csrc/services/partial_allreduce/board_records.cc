#include "services/partial_allreduce/board_records.h"

#include <algorithm>

#include "core/error.h"
#include "core/hot.h"

namespace pyc {
namespace {

/// For results of this size, the memory is worth the accounting, which takes a tenth of the time of a short round.
constexpr std::size_t kLongBytes = std::size_t{256} << 10;

}  // namespace

BoardRecords::BoardRecords(BoardMemory& memory, const BoardShape& shape, BoardRanks& ranks, BoardBuffers& buffers)
    : ranks_(ranks),
      buffers_(buffers),
      length_(shape.records),
      member_words_(shape.member_words()),
      keeps_totals_(shape.keeps_totals),
      releases_early_(shape.buffer_bytes() >= kLongBytes && !shape.recoverable),
      recoverable_(shape.recoverable),
      completed_(memory.take<Completed>(1)),
      records_(memory.take_rows<RoundRecord>(length_, 1)),
      members_(memory.take_rows<std::uint64_t>(length_, member_words_)),
      shares_(memory.take_rows<RoundShare>(length_, shape.local_ranks())),
      promised_(memory, shape.local_ranks(), member_words_),
      flushed_(memory, shape.local_ranks(), member_words_) {}

BoardRecords::Kept::Kept(BoardMemory& memory, std::size_t ranks, std::size_t member_words)
    : records(memory.take_rows<RoundRecord>(ranks, 1)),
      members(memory.take_rows<std::uint64_t>(ranks, member_words)),
      shares(memory.take_rows<RoundShare>(ranks, 1)) {}

RoundView BoardRecords::Kept::view(Rank local) const {
  const auto row = static_cast<std::size_t>(local);
  return {records[row], members[row], shares[row]};
}

PYC_HOT RoundView BoardRecords::view(std::size_t index) const {
  return {records_[index], members_[index], shares_[index] + ranks_.own_local_rank()};
}

PYC_HOT RoundView BoardRecords::newest() const { return view(index_of(completed() - 1)); }

PYC_HOT std::optional<RoundView> BoardRecords::of(RoundNumber round) const {
  const std::size_t index = index_of(round);
  if (records_[index]->round == round) return view(index);
  const RoundView kept = promised_.view(ranks_.own_local_rank());
  if (kept.record->round == round) return kept;
  return std::nullopt;
}

RoundView BoardRecords::flush_record() const {
  RoundView newest = flushed_.view(ranks_.own_local_rank());
  for (std::size_t i = 0; i < length_; ++i) {
    const RoundRecord& record = *records_[i];
    const bool counts = record.round != kNoRound && record.flush;
    if (counts && (newest.record->round == kNoRound || record.round > newest.record->round)) newest = view(i);
  }
  if (newest.record->round == kNoRound) throw InternalError("the record of a flush round was not kept");
  return newest;
}

PYC_HOT void BoardRecords::evict_oldest() {
  const std::size_t index = index_of(completed());
  RoundRecord& record = *records_[index];
  if (record.round == kNoRound) return;
  const bool with_data = !keeps_totals_;  // with totals, the data is in a total
  for (Rank i = 0; i < ranks_.count(); ++i) {
    BoardSlot& slot = ranks_[i];
    if (recoverable_) slot.delivered = std::max(slot.delivered, shares_[index][i].newest_included);
    if (slot.promised == record.round) keep(promised_, index, i, with_data);
    if (slot.flush_waits && record.flush) keep(flushed_, index, i, with_data);
  }
  drop(record);
}

PYC_HOT void BoardRecords::add(const RoundRecord& record, const std::uint64_t* members, const RoundShare* shares) {
  const std::size_t index = index_of(completed());
  RoundRecord& added = *records_[index];
  added = record;
  added.awaits = 0;
  std::copy_n(members, member_words_, members_[index]);
  std::copy_n(shares, ranks_.count(), shares_[index]);
  if (!releases_early_) return;
  for (Rank i = 0; i < ranks_.count(); ++i) added.awaits += ranks_[i].owed > record.round ? 1 : 0;
  if (added.awaits == 0) buffers_.release(added.buffer);
}

PYC_HOT void BoardRecords::give(RoundNumber first, RoundNumber end) {
  if (!releases_early_) return;
  const RoundNumber held = completed() < length_ ? 0 : completed() - length_;
  for (RoundNumber round = std::max(first, held); round < end; ++round) {
    RoundRecord& record = *records_[index_of(round)];
    if (record.round == round && --record.awaits == 0) buffers_.release(record.buffer);
  }
}

void BoardRecords::keep(const Kept& into, std::size_t index, Rank local, bool with_data) {
  const auto row = static_cast<std::size_t>(local);
  RoundRecord& kept = *into.records[row];
  drop(kept);
  ranks_[local].keeps = true;
  kept = *records_[index];
  std::copy_n(members_[index], member_words_, into.members[row]);
  *into.shares[row] = shares_[index][local];
  if (!with_data) kept.buffer = kNoBuffer;
  if (kept.buffer != kNoBuffer) buffers_.retain(kept.buffer);
}

void BoardRecords::keep_for_own(const RoundView& view) {
  const auto row = static_cast<std::size_t>(ranks_.own_local_rank());
  RoundRecord& kept = *promised_.records[row];
  drop(kept);
  ranks_.own().keeps = true;
  kept = *view.record;
  std::copy_n(view.members, member_words_, promised_.members[row]);
  *promised_.shares[row] = *view.share;
}

PYC_HOT void BoardRecords::drop(RoundRecord& record) {
  buffers_.release(record.buffer);
  record.round = kNoRound;
}

PYC_HOT void BoardRecords::drop_kept(RoundNumber before) {
  BoardSlot& own = ranks_.own();
  if (!own.keeps) return;
  own.keeps = false;
  const auto row = static_cast<std::size_t>(ranks_.own_local_rank());
  for (RoundRecord* const record : {promised_.records[row], flushed_.records[row]}) {
    if (record->round == kNoRound) continue;
    if (record->round < before) {
      drop(*record);
    } else {
      own.keeps = true;
    }
  }
}

}  // namespace pyc
