// How a call waits for the streams of its application: on the host, where Ctrl-C ends it.
#pragma once

#include <thread>

#include "bindings/bindings.h"
#include "engine/engine.h"

namespace pyc {

/// Polls until `done()` is true, without the GIL: a stream of the application may take any time. False after `timeout`
/// seconds; negative: no limit. Throws what signal handlers raise.
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

}  // namespace pyc
