// Reads a board after a death. A dead rank may have held the mutex, so these functions do not lock it. They require the
// conditions in partial_allreduce.h, and read only data that is whole at any moment of a critical section.
#include "services/partial_allreduce/recovery.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
namespace {

/// The values of a round, copied.
RecoveryState::Values values_of(Board& board, const RoundRecord& record) {
  RecoveryState::Values values;
  if (record.buffer == kNoBuffer) return values;
  const std::byte* const data = board.buffers().data(record.buffer);
  values.data.assign(data, data + board.shape().buffer_bytes());
  if (board.shape().op == ReduceOp::kAvg) values.divisor = record.contributors;
  return values;
}

}  // namespace

RecoveryState PartialAllreduce::recovery_state() {
  Board& board = *board_;
  const BoardSlot& own = board.ranks().own();
  RecoveryState state;
  state.completed = board.completed();
  state.contributions = sequence_;
  state.delivered = newest_delivered();
  state.lacking = own.lacking;
  // A rank that dies while it completes a round may have ended it here, without counting it.
  if (own.taken) {
    state.taken = board.round().own_share().newest_included;
  } else if (const std::optional<RoundView> uncounted = board.records().of(state.completed)) {
    state.taken = uncounted->share->newest_included;
  }
  const RoundNumber end = std::min(state.completed, own.owed);
  const RoundNumber given = results_.given();
  state.missed = results_.pending_rounds() + (end > given ? end - given : 0);
  state.sum = missed_sum(end);
  state.flushed = completed_flush();
  if (state.completed > 0) {
    const std::optional<RoundView> newest = board.records().of(state.completed - 1);
    if (!newest) throw InternalError("'" + options_.name + "': the newest round was not kept");
    Call call;
    results_.describe(call, *newest);
    state.newest = {call.info, newest->record->flush, values_of(board, *newest->record)};
  }
  return state;
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

/// Of the rounds before `end` that the application has not received.
RecoveryState::Values PartialAllreduce::missed_sum(RoundNumber end) const {
  Board& board = *board_;
  const BoardShape& shape = board.shape();
  RecoveryState::Values sum;
  if (!shape.keeps_totals) return sum;
  // A single round is not added to zeros, which would change the sign of a zero.
  const auto add = [&](RecoveryState::Values values) {
    if (values.data.empty()) return;
    if (sum.data.empty()) {
      sum = std::move(values);
      return;
    }
    RecoveryState::Values both{std::vector<std::byte>(shape.buffer_bytes()), 1};
    memory_.fill_identity(shape.elements, shape.op, both.data.data(), shape.count);
    for (const RecoveryState::Values* each : {&sum, &values}) {
      memory_.add(shape.elements, both.data.data(), each->data.data(), shape.count, each->divisor);
    }
    sum = std::move(both);
  };
  const RoundTotal& total = board.ranks().own().total;
  if (total.buffer != kNoBuffer) {
    const std::byte* const data = board.buffers().data(total.buffer);
    add({{data, data + shape.buffer_bytes()}, 1});
  }
  for (RoundNumber round = std::max<RoundNumber>(results_.given(), total.upto); round < end; ++round) {
    const std::optional<RoundView> record = board.records().of(round);
    if (!record) throw InternalError("'" + options_.name + "': round " + std::to_string(round) + " was not kept");
    add(values_of(board, *record->record));
  }
  return sum;
}

/// The round of the flush under way, if it is among the completed rounds.
std::optional<RoundInfo> PartialAllreduce::completed_flush() const {
  if (!open_flush_ || board_->round().state().flushes <= open_flush_->epoch) return std::nullopt;
  const RoundView flush = board_->records().flush_record();
  if (flush.record->round >= board_->completed()) return std::nullopt;  // not counted yet
  Call call;
  results_.describe(call, flush);
  return call.info;
}

bool PartialAllreduce::complete_recovered(Call& call) {
  if (call.done) return true;
  Board& board = *board_;
  if (call.flush || board.completed() <= call.round) return false;
  const std::optional<RoundView> own = board.records().of(call.round);
  results_.describe(call, own ? *own : board.records().newest());
  return call.done = true;
}

// ------------------------------------------------------------------------------------------------ before its rounds

void PartialAllreduce::continue_from(std::uint64_t lacking, std::uint64_t missed, const std::byte* values,
                                     std::size_t divisor) {
  const Lock lock = reenter();
  BoardSlot& own = board_->ranks().own();
  own.lacking = lacking;
  results_.add_pending(missed);
  if (values == nullptr) return;
  BufferNumber& total = own.total.buffer;
  const bool is_first = total == kNoBuffer;
  if (is_first) total = board_->buffers().take();
  std::byte* const into = board_->buffers().data(total);
  if (is_first && divisor == 1) {
    std::copy_n(values, board_->shape().buffer_bytes(), into);
    return;
  }
  if (is_first) memory_.fill_identity(elements_, options_.op, into, options_.count);
  memory_.add(elements_, into, values, options_.count, divisor);
}

void PartialAllreduce::deposit(const std::byte* data) {
  const Lock lock = reenter();
  BoardBuffers& buffers = board_->buffers();
  BoardSlot& own = board_->ranks().own();
  BufferNumber deposit = buffers.take();
  take_in(deposit, data);
  if (own.deposit != kNoBuffer && options_.late == Options::Late::kAccumulate) {
    memory_.reduce(elements_, options_.op, buffers.data(deposit), buffers.data(own.deposit), options_.count);
  } else {
    own.contributions = 0;
  }
  buffers.release(own.deposit);
  own.deposit = deposit;
  ++own.contributions;
  own.newest = ++sequence_;
}

void PartialAllreduce::receive_pending() {
  Lock lock = enter_soon();
  while (!lock || board_->ranks().own().folding) {  // another rank adds a round to the total
    lock = Lock();
    engine_->check();
    lock = enter_soon();
  }
  results_.publish(results_.take_pending(), lock);
}

}  // namespace pyc
