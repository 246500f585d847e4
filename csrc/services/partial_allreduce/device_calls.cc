// Calls on devices: a contribution is handed over when a stream of the application has produced it (device_handover.h).
// Until then it has no round and is not an arrival.
#include <algorithm>

#include "core/error.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

std::shared_ptr<Call> PartialAllreduce::contribute_when_made(const std::byte* data, DeviceHandover::Producers producers,
                                                             const Engine::Interrupt& interrupt) {
  const DeviceHandover::Turn turn(*handover_);
  await_handover(nullptr, -1, interrupt);  // of the previous call: there is memory for one
  check_may_contribute();
  std::shared_ptr<Call> call = new_call();
  call->round = kNoRound;
  on_device([&] { handover_->begin(call, data, producers); });
  const bool is_handed_over = hand_over_if_made();
  if (leader_) engine_->advance();  // send the arrival before the caller does anything else
  if (!is_handed_over) engine_->work_in_background();
  return call;
}

void PartialAllreduce::finish_handing_over(Seconds timeout, const Engine::Interrupt& interrupt) {
  const DeviceHandover::Turn turn(*handover_);
  await_handover(nullptr, timeout, interrupt);
}

/// Whether nothing is left to hand over. The caller must have entered.
bool PartialAllreduce::hand_over_if_made() {
  handover_->throw_failure();
  if (!handover_->is_open()) return true;
  try {
    return naming_the_dead([&] {
      if (!handover_->is_there() || !board_->mutex().comes_free(kSoon)) return false;
      limit_ = kNever;  // the progress thread may call this, and it handles no signals
      if (handover_->claim()) do_contribute(handover_->call(), handover_->values(), Taker::kLater);
      return true;
    });
  } catch (const ClosedError&) {
    throw;  // this rank has left, but earlier calls can still be waited for
  } catch (const std::exception&) {
    handover_->fail(std::current_exception());
    throw;
  }
}

/// Called by the engine's progress. An error is kept, and the next call throws it.
bool PartialAllreduce::advance_handover() {
  if (!handover_->is_open() || !handover_->try_enter()) return false;
  bool moved = true;
  try {
    moved = handover_->is_open() && hand_over_if_made();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): kept
  }
  handover_->leave();
  return moved;
}

/// Waits until everything is handed over or the earlier `call` is done. The caller must have entered.
void PartialAllreduce::await_handover(Call* call, Seconds timeout, const Engine::Interrupt& interrupt) {
  const auto is_others = [&] { return call != nullptr && !handover_->is_of(*call); };
  const auto done = [&] {
    return hand_over_if_made() || (is_others() && naming_the_dead([&] { return drive(*call); }));
  };
  const auto look = [&] {
    if (interrupt) interrupt();
    board_->check_failure();
  };
  if (wait_while_alive(*engine_, done, timeout, look, [this] { inspector_.check_alive(); }, {})) return;
  if (is_others()) return;  // `do_wait` reports the ranks that `call` waits for
  throw StallError("'" + options_.name + "': what this rank has contributed is not made after " + in_seconds(timeout) +
                   ": its stream on the device has other work, or hangs");
}

bool PartialAllreduce::test_on_device(Call& call) {
  const DeviceHandover::Turn turn(*handover_);
  if (!hand_over_if_made() && handover_->is_of(call)) return false;
  check_not_dropped(call);
  return do_test(call);
}

void PartialAllreduce::check_not_dropped(const Call& call) const {
  handover_->throw_failure();
  if (call.round == kNoRound && !handover_->is_of(call)) throw_aborted();
}

const RoundInfo& PartialAllreduce::wait_on_device(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  const DeviceHandover::Turn turn(*handover_);
  const Seconds begin = engine_->transport().now();
  check_not_dropped(call);
  await_handover(&call, timeout, interrupt);
  const Seconds waited = engine_->transport().now() - begin;
  return do_wait(call, timeout < 0 ? timeout : std::max(timeout - waited, 0.0), interrupt);
}

}  // namespace pyc
