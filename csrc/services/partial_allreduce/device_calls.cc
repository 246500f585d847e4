// Calls on devices: what is contributed is handed over when a stream of the application has made it
// (device_handover.h). A call that is not handed over has no round yet, and is no arrival.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/backoff.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
namespace {

constexpr Seconds kLookAround = 0.05;  // whether it was interrupted, and everybody lives

}  // namespace

std::shared_ptr<Call> PartialAllreduce::contribute_when_made(const std::byte* data, DeviceHandover::Producers producers,
                                                             const Engine::Interrupt& interrupt) {
  const DeviceHandover::Turn turn(*handover_);
  await_handover(nullptr, -1, interrupt);  // of the call before: there is memory for one
  check_may_contribute();
  std::shared_ptr<Call> call = new_call();
  call->round = kNoRound;
  on_device([&] { handover_->begin(call, data, producers); });
  const bool is_handed_over = hand_over_if_made();
  if (leader_ || !is_handed_over) engine_->advance();  // which learns what there is to do in the background
  if (!is_handed_over) engine_->wake();
  return call;
}

void PartialAllreduce::finish_handing_over(Seconds timeout, const Engine::Interrupt& interrupt) {
  const DeviceHandover::Turn turn(*handover_);
  await_handover(nullptr, timeout, interrupt);
}

/// Whether nothing is left to be handed over. By who has entered.
bool PartialAllreduce::hand_over_if_made() {
  handover_->throw_failure();
  if (!handover_->is_open()) return true;
  return naming_the_dead([&] {
    if (!handover_->is_there()) return false;
    if (handover_->claim()) do_contribute(handover_->call(), handover_->values(), Taker::kLater);
    return true;
  });
}

/// Of the engine's progress, which nobody listens to.
bool PartialAllreduce::advance_handover() {
  if (!handover_->is_open() || !handover_->try_enter()) return false;
  bool moved = true;
  try {
    moved = handover_->is_open() && hand_over_if_made();
  } catch (const std::exception&) {
    handover_->fail(std::current_exception());
  }
  handover_->leave();
  return moved;
}

/// Until all is handed over, or `call`, of before, is done. By who has entered. StallError after `timeout` seconds.
void PartialAllreduce::await_handover(Call* call, Seconds timeout, const Engine::Interrupt& interrupt) {
  Transport& clock = engine_->transport();
  const Seconds begin = clock.now();
  Seconds next_look = begin + kLookAround;
  Backoff backoff(clock.local_ranks());
  while (!hand_over_if_made()) {
    if (call != nullptr && !handover_->is_of(*call) && naming_the_dead([&] { return drive(*call); })) return;
    if (leader_ || engine_->progress() == Progress::kCaller) engine_->advance();
    const Seconds now = clock.now();
    if (timeout >= 0 && now - begin >= timeout) {
      if (call != nullptr && !handover_->is_of(*call)) return;  // others are waited for
      throw StallError("'" + options_.name + "': what this rank has contributed is not made after " +
                       in_seconds(now - begin) + ": its stream on the device has other work, or hangs");
    }
    if (now >= next_look) {
      next_look = now + kLookAround;
      if (interrupt) interrupt();
      engine_->check();
      board_->check_failure();
      inspector_.check_alive();
    }
    backoff.pause(true);
  }
}

bool PartialAllreduce::test_on_device(Call& call) {
  const DeviceHandover::Turn turn(*handover_);
  if (!hand_over_if_made() && handover_->is_of(call)) return false;
  check_not_dropped(call);
  return do_test(call);
}

void PartialAllreduce::check_not_dropped(const Call& call) const {
  if (call.round != kNoRound || handover_->is_of(call)) return;
  throw ClosedError("'" + options_.name + "': this contribution was discarded by abort()");
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
