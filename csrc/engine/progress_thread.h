// The one background thread of a process: it drives every engine that asks for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace pyc {

class ProgressThread {
 public:
  static ProgressThread& instance();

  void add(Engine* engine);
  /// Returns when the thread no longer touches the engine. The thread ends with its last engine.
  void remove(Engine* engine);

  /// An engine has something to do in the background: the thread sleeps while none has.
  void wake();

  /// A thread that waited, and drove its engine meanwhile, does so no more.
  void take_over() {
    if (rests_.load()) wake();
  }

 private:
  using Clock = std::chrono::steady_clock;

  ProgressThread() = default;
  std::thread start(unsigned generation);
  void loop(unsigned generation);
  bool rest(std::unique_lock<std::mutex>& lock, unsigned generation, Clock::time_point listens);

  std::mutex mutex_;  // guards engines_; held during a pass over them, so taken before an engine's progress lock
  std::condition_variable woken_;
  std::vector<Engine*> engines_;
  Rank ranks_ = 1;           // that share this machine
  unsigned generation_ = 0;  // of the thread
  std::atomic<int> pending_changes_{0};
  std::thread thread_;
  std::atomic<bool> rests_{false};  // it sleeps while waiting threads drive every engine
};

}  // namespace pyc
