#include "services/partial_allreduce/results.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/hot.h"
#include "memory/copy.h"

namespace pyc {

Results::Results(ReductionMemory& memory, std::shared_ptr<Board> board, std::size_t history)
    : memory_(memory),
      history_(history),
      board_(std::move(board)),
      leases_(std::make_shared<Leases>(board_)),
      pool_(std::make_shared<BufferPool>(memory, board_->shape().buffer_bytes())),
      every_member_(board_->shape().member_words()) {
  Rank count = 0;
  for (Rank r = 0; r < board_->shape().size && !every_member_.empty(); ++r) insert(every_member_.data(), r, count);
}

void Results::reserve(std::size_t buffers) {
  std::vector<BufferRef> taken;
  while (taken.size() < buffers) taken.push_back(pool_->take());
}

PYC_HOT void Results::describe(Call& call, const RoundView& view) const {
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
  if (call.round < given_) {  // a later call has received it
    call.done = call.given = true;
    given.nothing_new_ = true;
    return given;
  }
  const bool averages = board.shape().op == ReduceOp::kAvg;
  const auto add = [&](const RoundView& view) {
    if (view.record->contributors == 0) return;
    if (view.record->buffer == kNoBuffer) throw InternalError("the result of a round was released too early");
    board.buffers().retain(view.record->buffer);
    given.add({view.record->buffer, averages ? std::size_t{view.record->contributors} : 1});
  };
  const RoundNumber before = given_;
  std::optional<RoundView> of_call = call.flush ? board.records().flush_record() : board.records().of(call.round);
  if (!of_call || own.total.upto > call.round + 1) {
    // The call's round was superseded or added to the total before the application looked. The call gets the newest
    // round, like a late call, or the last that is kept if this rank has left.
    const RoundNumber newest = std::min(board.completed(), own.owed) - 1;
    of_call = board.records().of(newest);
    if (!of_call) throw InternalError("round " + std::to_string(newest) + " was not kept");
    call.round = newest;
    describe(call, *of_call);
  }
  call.done = call.given = true;
  if (board.shape().keeps_totals) {
    const RoundNumber first = std::max<RoundNumber>(given_, own.total.upto);
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
  board.records().give(before, std::min<RoundNumber>(given_, own.owed));
  call.info.missed = given_ - before - 1 + std::exchange(pending_rounds_, 0);
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

PYC_HOT void Results::publish(Given given, std::unique_lock<BoardMutex>& lock) {
  const BoardShape& shape = board_->shape();
  if (given.nothing_new_ && !shape.keeps_totals) return lock.unlock();
  take_back();
  board_->buffers().release(shown_);
  board_->buffers().release(to_release_);
  computed_.reset();
  if (given.is_single() && given.one_.divisor == 1 && !shape.elements.widened() && !shape.on_device &&
      leases_->may_lease()) {
    shown_ = given.one_.buffer;
    lock.unlock();
    newest_.reset();
    return;
  }
  lock.unlock();
  compute(given);
  if (given.one_.buffer == kNoBuffer) return;
  try {
    lock.lock();
  } catch (const RankFailedError&) {  // since then: the call has its result, and the next call reports the death
    return;
  }
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
  value = narrowed(std::move(value), source, divisor);
  newest_.reset();
  computed_ = std::move(value);
}

/// Returns source / divisor in the element type: `value`, if that is the same.
BufferRef Results::narrowed(BufferRef value, const std::byte* source, std::size_t divisor) {
  const BoardShape& shape = board_->shape();
  if (source == value.data() && !shape.elements.widened()) return value;
  BufferRef narrow = pool_->take();
  memory_.store(shape.elements, narrow.data(), source, shape.count, divisor);
  return narrow;
}

void Results::set_result(const std::byte* values, std::size_t divisor) {
  const BoardShape& shape = board_->shape();
  BufferRef value = pool_->take();
  if (values == nullptr) memory_.fill_identity(shape.elements, shape.op, value.data(), shape.count);
  const std::byte* const source = values == nullptr ? value.data() : values;
  value = narrowed(std::move(value), source, divisor);
  if (shown_ != kNoBuffer) to_release_ = std::exchange(shown_, kNoBuffer);
  newest_.reset();
  computed_ = std::move(value);
}

Results::Given Results::take_pending() {
  Given given;
  BufferNumber& total = board_->ranks().own().total.buffer;
  if (total != kNoBuffer) given.add({std::exchange(total, kNoBuffer), 1});
  pending_rounds_ = 0;
  return given;
}

/// Releases the buffers of results that the application no longer reads. Under the mutex.
PYC_HOT void Results::take_back() {
  for (BufferNumber buffer = leases_->take_back(); buffer != kNoBuffer; buffer = leases_->take_back()) {
    board_->buffers().release(buffer);
  }
}

PYC_HOT std::shared_ptr<const std::byte> Results::newest() {
  if (shown_ != kNoBuffer) newest_ = leases_->lease(std::exchange(shown_, kNoBuffer), leases_);
  if (computed_) {
    const auto reference = std::make_shared<BufferRef>(std::move(computed_));
    newest_ = {reference, reference->data()};
  }
  return newest_;
}

PYC_HOT bool Results::read(std::byte* to) const {
  const std::byte* from = shown_ != kNoBuffer ? board_->buffers().data(shown_) : newest_.get();
  if (computed_) from = computed_.data();
  if (from == nullptr) return false;
  const BoardShape& shape = board_->shape();
  copy(memory_, to, from, shape.count * size_of(shape.elements.type));
  return true;
}

// ------------------------------------------------------------------------------------------------ direct rounds

PYC_HOT Results::DirectRecord Results::record_of(const Call& call) const {
  const BoardShape& shape = board_->shape();
  const auto everybody = static_cast<std::uint32_t>(shape.size);
  const BoardPosts& posts = board_->posts();
  const auto first = static_cast<std::size_t>(posts.first_to_call(call.round));
  return {
      .record = {.round = call.round, .initiator = shape.ranks[first], .contributors = everybody, .active = everybody},
      .share = {.newest_included = call.sequence}};
}

std::size_t Results::divisor() const {
  return board_->shape().op == ReduceOp::kAvg ? static_cast<std::size_t>(board_->shape().size) : 1;
}

/// In rank order, so that all ranks compute the same bits.
PYC_HOT void Results::fold(RoundNumber round, std::byte* into) {
  const BoardShape& shape = board_->shape();
  const BoardPosts& posts = board_->posts();
  copy(memory_, into, posts.data_of(0, round), shape.buffer_bytes());
  for (Rank i = 1; i < board_->ranks().count(); ++i) {
    memory_.reduce(shape.elements, shape.op, into, posts.data_of(i, round), shape.count);
  }
}

PYC_HOT void Results::give_directly(Call& call) {
  const BoardShape& shape = board_->shape();
  const DirectRecord direct = record_of(call);
  describe(call, {&direct.record, every_member_.data(), &direct.share});
  if (shown_ != kNoBuffer) to_release_ = std::exchange(shown_, kNoBuffer);
  newest_.reset();
  if (!computed_) computed_ = pool_->take();  // otherwise the application has not looked at it
  const bool has_another_form = shape.elements.widened() || divisor() != 1;
  if (has_another_form && !partial_) partial_ = pool_->take();
  fold(call.round, has_another_form ? partial_.data() : computed_.data());
  if (has_another_form) {
    memory_.store(shape.elements, computed_.data(), partial_.data(), shape.count, divisor());
  }
  given_ = call.round + 1;
  call.done = call.given = true;
}

void Results::keep(Call& call) {
  const BoardShape& shape = board_->shape();
  BoardBuffers& buffers = board_->buffers();
  DirectRecord direct = record_of(call);
  RoundTotal& total = board_->ranks().own().total;
  BufferNumber sum = buffers.take();
  fold(call.round, buffers.data(sum));
  if (shape.keeps_totals) {
    total = {.buffer = buffers.take(), .upto = call.round + 1};
    memory_.fill_identity(shape.elements, shape.op, buffers.data(total.buffer), shape.count);
    memory_.add(shape.elements, buffers.data(total.buffer), buffers.data(sum), shape.count, divisor());
    buffers.release(sum);
  }
  direct.record.buffer = sum;
  const RoundView view{&direct.record, every_member_.data(), &direct.share};
  describe(call, view);
  call.done = true;
  board_->records().keep_for_own(view);
}

}  // namespace pyc
