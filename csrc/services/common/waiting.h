// What waiting calls share. For ranks that share memory no message tells that one of them is gone.
#pragma once

#include <atomic>
#include <functional>

#include "core/error.h"
#include "engine/engine.h"

namespace pyc {

/// For an inquiry: an engine answers by itself, so who does not within this is stopped or gone.
inline constexpr Seconds kAnswerTime = 0.5;

/// Says, for as long as it lives, that the application is in a call.
class InCall {
 public:
  explicit InCall(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~InCall() { flag_ = false; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// `Engine::wait` with a look at who lives now and then: `check_alive` throws RankFailedError that names who died. It
/// is asked too if the transport is the first to say that somebody did: that need not know who.
inline bool wait_while_alive(Engine& engine, const std::function<bool()>& done, Seconds timeout,
                             const Engine::Interrupt& interrupt, const std::function<void()>& check_alive,
                             const Backoff::Sleep& sleep) {
  constexpr Seconds kCheckPeriod = 0.25;  // some system calls for each rank
  Seconds next_check = engine.transport().now() + kCheckPeriod;
  const auto look_around = [&] {
    if (interrupt) interrupt();
    if (engine.transport().now() < next_check) return;
    check_alive();
    next_check = engine.transport().now() + kCheckPeriod;
  };
  try {
    return engine.wait(done, timeout, look_around, sleep);
  } catch (const RankFailedError&) {
    check_alive();
    throw;
  }
}

}  // namespace pyc
