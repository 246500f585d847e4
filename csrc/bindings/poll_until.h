// How a call waits for the application's streams: on the host, where Ctrl-C ends the wait.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/at_end.h"
#include "engine/engine.h"
#include "memory/executor.h"

namespace pyc {

/// Polls until `done()`, without the GIL, because a stream may take any time. Returns false after `timeout` seconds (no
/// limit if negative). Throws the exceptions of signal handlers.
template <class Done>
bool poll_until(Engine& engine, Done done, Seconds timeout = -1) {
  constexpr Seconds kInterruptPeriod = 0.05;
  Transport& clock = engine.transport();
  const Seconds begin = clock.now();
  Seconds next_interrupt = begin + kInterruptPeriod;
  while (!done()) {
    std::this_thread::yield();
    const Seconds now = clock.now();
    if (timeout >= 0 && now - begin > timeout) return false;
    if (now < next_interrupt) continue;
    run_signal_handlers();
    next_interrupt = now + kInterruptPeriod;
  }
  return true;
}

/// An event for each thread that waits for streams. Creation makes the first one.
class CallersEvents {
 public:
  explicit CallersEvents(Executor& executor) : executor_(executor) { idle_.push_back(executor.new_event()); }

  /// Calls `action` with one of the events.
  template <class Action>
  auto with(Action action) {
    std::unique_ptr<Event> event;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        event = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!event) event = executor_.new_event();
    const AtEnd is_idle([&] {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(event));
    });
    return action(*event);
  }

 private:
  Executor& executor_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> idle_;
};

/// The rest of `timeout` seconds since `begin`; no limit if negative.
inline Seconds rest_of(Seconds timeout, Seconds begin, Engine& engine) {
  return timeout < 0 ? timeout : std::max(timeout - (engine.transport().now() - begin), 0.0);
}

/// Waits until the streams of the application have completed their work so far.
inline bool wait_for_streams(Engine& engine, Executor& executor, CallersEvents& events,
                             const std::vector<std::uintptr_t>& streams, Seconds timeout = -1) {
  std::vector<std::unique_ptr<Stream>> callers;
  for (const std::uintptr_t stream : streams) callers.push_back(executor.stream_of_caller(stream));
  const Seconds begin = engine.transport().now();
  return events.with([&](Event& called) {
    return std::all_of(callers.begin(), callers.end(), [&](const std::unique_ptr<Stream>& stream) {
      stream->record(called);
      return poll_until(engine, [&] { return called.reached(); }, rest_of(timeout, begin, engine));
    });
  });
}

}  // namespace pyc
