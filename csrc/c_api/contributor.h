// The thread that contributes to a partial allreduce, for which other ranks may wait until it flushes.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/hot.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

class Contributor {
 public:
  Contributor(const Engine& engine, const PartialAllreduce& collective);
  ~Contributor();
  Contributor(const Contributor&) = delete;
  Contributor& operator=(const Contributor&) = delete;

  PYC_HOT void note_contribution() { thread_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  void note_flush() { thread_.store(std::thread::id(), std::memory_order_relaxed); }
  /// Whether this thread has contributed since the last flush.
  bool is_this_thread() const { return thread_ == std::this_thread::get_id(); }

  /// Throws std::runtime_error if other ranks of the engine may wait for this thread: a `call` of all ranks could
  /// deadlock.
  static void check_flushed(const Engine& engine, const std::string& call);

 private:
  const Engine& engine_;
  const PartialAllreduce& collective_;
  std::atomic<std::thread::id> thread_;
};

}  // namespace pyc
