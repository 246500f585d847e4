#include "services/partial_allreduce/results.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "hot/hot.h"
#include "memory/copy.h"

namespace pyc {

Results::Results(Memory& memory, std::shared_ptr<Board> board, std::size_t history)
    : memory_(memory),
      history_(history),
      board_(std::move(board)),
      leases_(std::make_shared<Leases>(board_)),
      pool_(std::make_shared<BufferPool>(memory, board_->shape().buffer_bytes())) {}

PYC_HOT void Results::tell(Call& call, const RoundView& view) const {
  const RoundShare& share = *view.share;
  RoundInfo& info = call.info;
  info.round = view.record->round;
  info.initiator = view.record->initiator;
  info.included = share.newest_included > 0 && share.newest_included >= call.sequence;
  info.contributor_count = view.record->contributors;
  info.contributors.assign(view.members, board_->shape().member_words());
  info.active = view.record->active;
  info.staleness = share.staleness;
}

PYC_HOT Results::Given Results::collect(Call& call) {
  Board& board = *board_;
  BoardSlot& own = board.ranks().own();
  Given given;
  call.done = call.given = true;
  if (call.round < given_) {  // a later call was given it already
    given.nothing_new_ = true;
    return given;
  }
  const bool averages = board.shape().op == ReduceOp::kAvg;
  const auto add = [&](const RoundView& view) {
    if (view.record->buffer == kNoBuffer) return;
    board.buffers().retain(view.record->buffer);
    given.add({view.record->buffer, averages ? std::size_t{view.record->contributors} : 1});
  };
  const RoundNumber before = given_;
  std::optional<RoundView> of_call = call.flush ? board.records().flush_record() : board.records().of(call.round);
  if (!of_call || own.total.upto > call.round + 1) {
    // Its round was superseded, or added to the total, before anybody looked: it is told of the newest, as a late call.
    of_call = board.records().newest();
    call.round = of_call->record->round;
    tell(call, *of_call);
  }
  if (board.shape().keeps_totals) {
    const RoundNumber first = std::max(given_, own.total.upto);
    if (own.total.buffer != kNoBuffer) given.add({std::exchange(own.total.buffer, kNoBuffer), 1});
    for (RoundNumber round = first; round <= call.round; ++round) {
      const std::optional<RoundView> record = board.records().of(round);
      if (!record) throw InternalError("round " + std::to_string(round) + " was not kept");
      add(*record);
    }
  } else {
    add(*of_call);
  }
  given_ = call.round + 1;
  own.given = given_;
  call.info.missed = given_ - before - 1;
  call.info.overrun = call.info.missed > history_;
  board.records().drop_kept(given_);
  return given;
}

void Results::Given::add(Term term) {
  if (one_.buffer == kNoBuffer) {
    one_ = term;
  } else {
    others_.push_back(term);
  }
}

template <class Action>
void Results::Given::for_each(Action action) {
  if (one_.buffer != kNoBuffer) action(one_);
  for (Term& term : others_) action(term);
}

PYC_HOT void Results::publish(Given given, std::unique_lock<RobustMutex>& lock) {
  const BoardShape& shape = board_->shape();
  if (given.nothing_new_ && !shape.keeps_totals) return lock.unlock();
  take_back();
  board_->buffers().release(shown_);
  if (given.is_single() && given.one_.divisor == 1 && !shape.elements.widened() && leases_->may_lease()) {
    shown_ = given.one_.buffer;
    lock.unlock();
    newest_.reset();
    return;
  }
  lock.unlock();
  compute(given);
  if (given.one_.buffer == kNoBuffer) return;
  lock.lock();
  given.for_each([&](Given::Term& term) { board_->buffers().release(term.buffer); });
  lock.unlock();
}

void Results::compute(Given& given) {
  const BoardShape& shape = board_->shape();
  BufferRef value = pool_->take();
  std::size_t divisor = 1;
  const std::byte* source = value.data();
  if (given.is_single()) {
    source = board_->buffers().data(given.one_.buffer);
    divisor = given.one_.divisor;
  } else {
    memory_.fill_identity(shape.elements, shape.op, value.data(), shape.count);
    given.for_each([&](const Given::Term& term) {
      memory_.add(shape.elements, value.data(), board_->buffers().data(term.buffer), shape.count, term.divisor);
    });
  }
  if (source != value.data() || shape.elements.widened()) {
    BufferRef narrow = pool_->take();
    memory_.store(shape.elements, narrow.data(), source, shape.count, divisor);
    value = std::move(narrow);
  }
  const auto reference = std::make_shared<BufferRef>(std::move(value));
  newest_ = {reference, reference->data()};
}

/// Under the mutex: buffers of results that the application does not look at any more.
PYC_HOT void Results::take_back() {
  for (BufferNumber buffer = leases_->take_back(); buffer != kNoBuffer; buffer = leases_->take_back()) {
    board_->buffers().release(buffer);
  }
}

PYC_HOT std::shared_ptr<const std::byte> Results::newest() {
  if (shown_ != kNoBuffer) newest_ = leases_->lease(std::exchange(shown_, kNoBuffer), leases_);
  return newest_;
}

PYC_HOT bool Results::read(std::byte* to) const {
  const std::byte* const from = shown_ != kNoBuffer ? board_->buffers().data(shown_) : newest_.get();
  if (from == nullptr) return false;
  const BoardShape& shape = board_->shape();
  copy(memory_, to, from, shape.count * size_of(shape.elements.type));
  return true;
}

}  // namespace pyc
