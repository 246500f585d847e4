// Reads a board after a death. A rank that died may have held the mutex, so these calls do not lock it: they need what
// recovery.h says, and read only what is whole at any moment of a critical section.
#include "services/partial_allreduce/recovery.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
namespace {

std::vector<std::byte> copied(const std::byte* data, std::size_t bytes) { return {data, data + bytes}; }

}  // namespace

Recovered PartialAllreduce::recovered() {
  Board& board = *board_;
  const BoardRecords& records = board.records();
  const bool averages = options_.op == ReduceOp::kAvg;
  Recovered found{.completed = board.completed(), .handed_over = sequence_, .delivered = newest_delivered()};
  // A rank that dies while it completes a round may have ended it here, without counting it.
  if (board.ranks().own().taken) {
    found.taken = board.round().own_share().newest_included;
  } else if (const std::optional<RoundView> uncounted = records.of(found.completed)) {
    found.taken = uncounted->share->newest_included;
  }
  found.flushed = open_flush_ && board.round().state().flushes > open_flush_->epoch;
  if (!closed_) {
    found.missed = found.completed - results_.given();
    found.sum = missed_sum();
  }
  if (found.completed == 0) return found;
  const std::optional<RoundView> newest = records.of(found.completed - 1);
  if (!newest) throw InternalError("'" + options_.name + "': the newest round was not kept");
  Call call;
  results_.describe(call, *newest);
  found.newest = {.info = call.info,
                  .flush = newest->record->flush,
                  .values = {},
                  .divisor = averages ? std::max<std::size_t>(newest->record->contributors, 1) : 1};
  if (newest->record->buffer != kNoBuffer) {
    found.newest->values = copied(board.buffers().data(newest->record->buffer), board.shape().buffer_bytes());
  }
  return found;
}

std::uint64_t PartialAllreduce::newest_delivered() const {
  Board& board = *board_;
  std::uint64_t newest = board.ranks().own().delivered;
  const RoundNumber completed = board.completed();
  for (RoundNumber age = 1; age <= std::min<RoundNumber>(completed, board.shape().records); ++age) {
    if (const std::optional<RoundView> record = board.records().of(completed - age)) {
      newest = std::max(newest, record->share->newest_included);
    }
  }
  return newest;
}

std::uint64_t PartialAllreduce::delivered() {
  const Lock lock = enter_soon();
  return lock ? newest_delivered() : 0;
}

/// Of the rounds that the application has not received.
std::vector<std::byte> PartialAllreduce::missed_sum() const {
  Board& board = *board_;
  const BoardShape& shape = board.shape();
  if (!shape.keeps_totals) return {};
  const RoundTotal& total = board.ranks().own().total;
  std::vector<std::byte> sum;
  const auto add = [&](BufferNumber buffer, std::size_t divisor) {
    if (sum.empty()) {
      sum.resize(shape.buffer_bytes());
      memory_.fill_identity(shape.elements, shape.op, sum.data(), shape.count);
    }
    memory_.add(shape.elements, sum.data(), board.buffers().data(buffer), shape.count, divisor);
  };
  if (total.buffer != kNoBuffer) add(total.buffer, 1);
  for (RoundNumber round = std::max<RoundNumber>(results_.given(), total.upto); round < board.completed(); ++round) {
    const std::optional<RoundView> record = board.records().of(round);
    if (!record) throw InternalError("'" + options_.name + "': round " + std::to_string(round) + " was not kept");
    if (record->record->buffer == kNoBuffer) continue;
    add(record->record->buffer, shape.op == ReduceOp::kAvg ? record->record->contributors : 1);
  }
  return sum;
}

bool PartialAllreduce::finish_recovered(Call& call) {
  if (call.done) return true;
  Board& board = *board_;
  if (call.flush) {
    if (board.round().state().flushes <= call.epoch) return false;
    results_.describe(call, board.records().flush_record());
    return call.done = true;
  }
  if (board.completed() <= call.round) return false;
  const std::optional<RoundView> own = board.records().of(call.round);
  results_.describe(call, own ? *own : board.records().newest());
  return call.done = true;
}

void PartialAllreduce::owe(const std::byte* values, std::size_t divisor, std::uint64_t rounds) {
  const Lock lock = reenter();
  results_.owe(rounds);
  if (values == nullptr) return;
  BufferNumber& total = board_->ranks().own().total.buffer;
  if (total == kNoBuffer) {
    total = board_->buffers().take();
    memory_.fill_identity(elements_, options_.op, board_->buffers().data(total), options_.count);
  }
  memory_.add(elements_, board_->buffers().data(total), values, options_.count, divisor);
}

}  // namespace pyc
