// Calls of a partial allreduce in direct rounds (board_posts.h): calls of a rank that has received everything promised,
// and only contributes and waits. Before any other step, the call moves to the board, and an open round with it.
#include <utility>

#include "core/hot.h"
#include "memory/copy.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

using State = BoardPosts::State;

/// A round that took this rank's data without a call belongs to the board, and `completed` counts it.
PYC_HOT bool PartialAllreduce::may_contribute_directly() const {
  const BoardPosts& posts = board_->posts();
  return posts.on() && !posts.closed() && pending_.empty() && results_.given() == accounted_ &&
         board_->completed() <= accounted_;
}

PYC_HOT bool PartialAllreduce::contribute_directly(const std::shared_ptr<Call>& call, const std::byte* data) {
  if (direct_call_) {
    const Lock lock = enter(limit_);
    local_.take_over_posts();
    move_direct_call();
  }
  if (!may_contribute_directly()) return false;
  BoardPosts& posts = board_->posts();
  const RoundNumber round = accounted_;
  load(memory_, elements_, posts.own_data(round), data, options_.count);
  posts.post(round, call->made, sequence_ + 1);
  State state = posts.state(round);
  if (state == State::kUndecided) {
    const Lock lock = reenter();  // the post is visible, so this call cannot be repeated
    state = posts.decided(round);
    if (state == State::kOpen) {  // the board has taken over the round without this post
      posts.take(board_->ranks().own_local_rank(), round);
      return false;
    }
  }
  if (state == State::kComplete) board_->events().ring_if_awaited();
  call->sequence = ++sequence_;
  call->round = round;
  direct_call_ = call;
  FlightRecorder& recorder = engine_->recorder();
  recorder.note_at(track_.get(), round, FlightRecorder::State::kCalled, call->made);
  if (state != State::kComplete) recorder.note_at(track_.get(), round, FlightRecorder::State::kStarted, call->made);
  trace_.add("contribute", call->made, round);
  return true;
}

/// Whether the call is done, if its round is direct. nullopt: the call now waits for a round of the board.
PYC_HOT std::optional<bool> PartialAllreduce::try_finish_directly(Call& call) {
  const BoardPosts& posts = board_->posts();
  State state = posts.state(call.round);
  if (state == State::kUndecided) {
    const Lock lock = enter_soon();
    if (!lock) return false;
    state = posts.decided(call.round);
  }
  if (state == State::kOpen) return false;
  if (state == State::kTaken) {
    pending_.push_back(std::move(direct_call_));
    return std::nullopt;
  }
  const Seconds begin = trace_.now();
  results_.give_directly(call);
  trace_.add("reduce", begin, call.round);
  if (call.info.initiator == engine_->rank()) trace_.add("round", call.made, call.round);
  accounted_ = results_.given();
  direct_call_.reset();
  note_given(call, engine_->transport().now());
  return true;
}

/// Under the mutex, after `take_over_posts`.
void PartialAllreduce::move_direct_call() {
  const std::shared_ptr<Call> call = std::move(direct_call_);
  if (board_->posts().decided(call->round) == State::kTaken) {
    pending_.push_back(call);
  } else {
    results_.keep(*call);
    accounted_ = call->round + 1;
  }
}

PYC_HOT bool PartialAllreduce::has_news(const Call& call) const {
  return direct_call_.get() == &call && board_->posts().state(call.round) != State::kOpen;
}

}  // namespace pyc
