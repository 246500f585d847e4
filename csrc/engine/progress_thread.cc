#include "engine/progress_thread.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "core/background_thread.h"
#include "engine/backoff.h"

namespace pyc {
namespace {

constexpr int kBeforeRest = 32;  // passes, about 1 ms: a short wait wakes no thread

/// An engine without background work still listens for other ranks' inquiries, which may wait this long (see
/// kAnswerTime). 20 looks per second cost almost nothing.
constexpr auto kListening = std::chrono::milliseconds(50);

}  // namespace

ProgressThread& ProgressThread::instance() {
  // Never destroyed: engines may outlive static objects. A forked child has no threads, so it gets a new object.
  static std::atomic<ProgressThread*> thread{new ProgressThread};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { thread = new ProgressThread; });
  static_cast<void>(registered);
  return *thread;
}

void ProgressThread::wake() {
  {
    const std::lock_guard lock(mutex_);
  }  // the thread has looked before this and sleeps, or looks after this
  woken_.notify_all();
}

void ProgressThread::add(Engine* engine) {
  ++pending_changes_;
  const std::lock_guard lock(mutex_);
  --pending_changes_;
  engines_.reserve(engines_.size() + 1);
  if (engines_.empty()) thread_ = start(generation_);  // may throw, before anything has changed
  engines_.push_back(engine);
  ranks_ = std::max(ranks_, engine->transport().local_ranks());
}

/// The thread blocks on mutex_ until the engine is added.
std::thread ProgressThread::start(unsigned generation) {
  return background_thread("pyc-progress", [this, generation] { loop(generation); });
}

void ProgressThread::remove(Engine* engine) {
  std::thread ended;
  {
    ++pending_changes_;
    const std::lock_guard lock(mutex_);
    --pending_changes_;
    std::erase(engines_, engine);
    if (engines_.empty()) {
      ++generation_;  // ends the thread even if an engine is added before it looks: that engine gets a new thread
      ended = std::move(thread_);
    }
  }
  woken_.notify_all();  // a newer thread may sleep there too
  if (ended.joinable()) ended.join();
}

/// Sleeps while waiting threads drive every engine that has work. A thread that stops driving leaves the count before
/// it reads `rests_`; this thread sets `rests_` before it reads the counts, so one of them sees the other. Returns
/// false if no thread woke it until `listens`.
bool ProgressThread::rest(std::unique_lock<Mutex>& lock, unsigned generation, Clock::time_point listens) {
  rests_ = true;
  const bool woken = woken_.wait_until(lock, listens, [&] {
    return generation_ != generation || pending_changes_ > 0 ||
           std::any_of(engines_.begin(), engines_.end(),
                       [](const Engine* engine) { return engine->in_background() && !engine->has_waiter(); });
  });
  if (generation_ == generation) rests_ = false;  // otherwise it belongs to a newer thread
  return woken;
}

void ProgressThread::loop(unsigned generation) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds, for short naps
  Rank ranks = 1;                    // that share this machine
  Backoff backoff(ranks);
  int idle_passes = 0;
  Clock::time_point next_listening = Clock::now() + kListening;
  for (;;) {
    bool moved = false;
    bool busy = false;
    bool drives = false;
    {
      std::unique_lock lock(mutex_);
      const auto idle = [this](const Engine* engine) { return !engine->in_background(); };
      const bool has_work = woken_.wait_until(lock, next_listening, [&] {
        return generation_ != generation || !std::all_of(engines_.begin(), engines_.end(), idle);
      });
      if (generation_ != generation) return;
      const bool listens = Clock::now() >= next_listening;
      if (listens) next_listening = Clock::now() + kListening;
      if (ranks_ != ranks) backoff = Backoff(ranks = ranks_);
      for (Engine* engine : engines_) {
        if (engine->has_waiter() || (idle(engine) && !listens)) continue;  // a waiting thread drives it
        moved = engine->advance() || moved;
        busy = busy || engine->busy();
        drives = drives || !idle(engine);
      }
      if (!has_work) continue;
      idle_passes = drives ? 0 : idle_passes + 1;
      if (idle_passes > kBeforeRest) {
        if (rest(lock, generation, next_listening)) idle_passes = 0;
        continue;
      }
    }
    while (pending_changes_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();  // the mutex is not fair
    if (moved) {
      backoff.reset();
    } else {
      backoff.pause(busy);
    }
  }
}

}  // namespace pyc
