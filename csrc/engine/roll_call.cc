#include "engine/roll_call.h"

namespace pyc {

void RollCall::ask(std::uint64_t step) {
  step_ = step;
  answered_ = {};
  come_ = {};
  const Message message{control(Control::kInquiry), ++call_, 0, 0};
  for (Rank r = 0; r < size_; ++r) {
    if (r != rank_) send_(r, bytes_of(message));
  }
}

std::vector<Rank> RollCall::missing() const {
  std::vector<Rank> ranks = come_.missing(size_);
  std::erase(ranks, rank_);
  return ranks;
}

void RollCall::on_inquiry(Rank from, ConstBytes message, const Progress& own) {
  const auto inquiry = read<Message>(message);
  send_(from, bytes_of(Message{control(Control::kAnswer), inquiry.call, own.steps, own.closed ? 1U : 0U}));
}

void RollCall::on_answer(Rank from, ConstBytes message) {
  const auto answer = read<Message>(message);
  if (answer.call != call_) return;  // to an earlier call
  answered_.insert(from);
  if (step_ == 0 ? answer.closed != 0 : answer.steps >= step_) come_.insert(from);
}

}  // namespace pyc
