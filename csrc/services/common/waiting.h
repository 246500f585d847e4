// What waiting calls share. For ranks that share memory no message tells that one of them is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

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

/// Adds the time for which it lives to a sum.
class TimeSpent {
 public:
  TimeSpent(Engine& engine, std::atomic<Seconds>& sum) : engine_(engine), sum_(sum), begin_(engine.transport().now()) {}
  ~TimeSpent() { sum_ += engine_.transport().now() - begin_; }
  TimeSpent(const TimeSpent&) = delete;
  TimeSpent& operator=(const TimeSpent&) = delete;

 private:
  Engine& engine_;
  std::atomic<Seconds>& sum_;
  const Seconds begin_;
};

/// Says who died, where a mutex or MPI only tells that somebody did: `check_alive` throws RankFailedError that names
/// who. It is asked again and again, because a process gives its mutexes away before it counts as ended.
template <class Action, class CheckAlive>
auto naming_the_dead(Action action, CheckAlive check_alive) {
  constexpr int kLooks = 200;
  constexpr auto kPeriod = std::chrono::milliseconds(5);
  try {
    return action();
  } catch (const RankFailedError& error) {
    if (!error.ranks().empty()) throw;
    for (int looks = 0; looks < kLooks; ++looks) {
      check_alive();
      std::this_thread::sleep_for(kPeriod);
    }
    throw;
  }
}

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
