#include "engine/progress_thread.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "engine/backoff.h"

namespace pyc {
namespace {

Seconds thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Seconds>(time.tv_sec) + static_cast<Seconds>(time.tv_nsec) * 1e-9;
}

}  // namespace

ProgressThread& ProgressThread::instance() {
  static ProgressThread* const thread = new ProgressThread;  // never destroyed: engines may outlive static objects
  return *thread;
}

void ProgressThread::add(Engine* engine) {
  ++pending_changes_;
  const std::lock_guard lock(mutex_);
  --pending_changes_;
  engines_.push_back(engine);
  ranks_ = std::max(ranks_, engine->transport().local_ranks());
  if (engines_.size() > 1) return;
  thread_ = std::thread([this, generation = generation_] { loop(generation); });
  pthread_setname_np(thread_.native_handle(), "pyc-progress");
}

void ProgressThread::remove(Engine* engine) {
  std::thread ended;
  {
    ++pending_changes_;
    const std::lock_guard lock(mutex_);
    --pending_changes_;
    std::erase(engines_, engine);
    if (engines_.empty()) {
      ++generation_;  // even if another engine comes before the thread looks: that one gets a thread of its own
      ended = std::move(thread_);
    }
  }
  if (ended.joinable()) ended.join();
}

Seconds ProgressThread::cpu_seconds() { return cpu_seconds_.load(std::memory_order_relaxed); }

void ProgressThread::loop(unsigned generation) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: naps as short as asked for
  Rank ranks = 1;                    // that share this machine
  Backoff backoff(ranks);
  unsigned passes = 0;
  for (;;) {
    bool moved = false;
    bool busy = false;
    {
      const std::lock_guard lock(mutex_);
      if (generation_ != generation) return;
      if (ranks_ != ranks) backoff = Backoff(ranks = ranks_);
      for (Engine* engine : engines_) {
        if (engine->has_waiter()) continue;  // it drives for itself
        moved = engine->advance() || moved;
        busy = busy || engine->busy();
      }
    }
    if (++passes % 64 == 0) cpu_seconds_.store(thread_cpu_seconds(), std::memory_order_relaxed);
    while (pending_changes_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();  // a mutex is not fair
    if (moved) {
      backoff.reset();
    } else {
      backoff.pause(busy);
    }
  }
}

}  // namespace pyc
