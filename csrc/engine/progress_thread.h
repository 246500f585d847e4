// The progress thread of a process, which drives all engines that have work in the background.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "core/lock_order.h"
#include "engine/engine.h"

namespace pyc {

class ProgressThread {
 public:
  static ProgressThread& instance();

  void add(Engine* engine);
  /// Returns once the thread no longer touches the engine. The thread ends with its last engine.
  void remove(Engine* engine);

  /// Call it when an engine has work in the background: the thread sleeps while none has.
  void wake();

  /// A waiting thread that drove its engine has stopped.
  void take_over() {
    if (rests_.load()) wake();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Mutex = Ordered<LockRank::kEngines>;

  ProgressThread() = default;
  std::thread start(unsigned generation);
  void loop(unsigned generation);
  bool rest(std::unique_lock<Mutex>& lock, unsigned generation, Clock::time_point listens);

  Mutex mutex_;  // guards engines_; held during a pass, so it is taken before an engine's progress lock
  OrderedCondition woken_;
  std::vector<Engine*> engines_;
  Rank ranks_ = 1;           // that share this machine
  unsigned generation_ = 0;  // of the thread
  std::atomic<int> pending_changes_{0};
  std::thread thread_;
  std::atomic<bool> rests_{false};  // the thread sleeps while waiting threads drive every engine
};

}  // namespace pyc
