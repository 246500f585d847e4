// Helpers of waiting calls. A rank gets no message when a rank that shares its memory dies, so it looks.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "core/error.h"
#include "core/hot.h"
#include "engine/engine.h"

namespace pyc {

/// Time limit of an inquiry. Engines answer without their application, so a silent rank is stopped or gone.
inline constexpr Seconds kAnswerTime = 0.5;

/// Marks the application as in a call while it lives.
class InCall {
 public:
  explicit InCall(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~InCall() { flag_ = false; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// Adds its lifetime to a sum.
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

/// Runs `action`. If it throws a RankFailedError without ranks, from a mutex or MPI, `check_alive` throws one that
/// names them. It is called for up to a second, because a process releases its mutexes before it counts as ended.
template <class Action, class CheckAlive>
PYC_HOT auto naming_the_dead(Action action, CheckAlive check_alive) {
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

/// `Engine::wait` that calls `check_alive` periodically, which throws a RankFailedError with the dead ranks. It also
/// calls it if the transport reports a death first, because that report may not name the rank.
inline bool wait_while_alive(Engine& engine, const std::function<bool()>& done, Seconds timeout,
                             const Engine::Interrupt& interrupt, const std::function<void()>& check_alive,
                             const Backoff::Sleep& sleep) {
  constexpr Seconds kCheckPeriod = 0.25;  // a check takes some system calls per rank
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
