// Waiting for ranks that share memory: no message tells that one of them is gone.
#pragma once

#include <functional>

#include "core/error.h"
#include "engine/engine.h"

namespace pyc {

/// `Engine::wait` with a look at who lives now and then: `check_alive` throws RankFailedError that names who died. It
/// is asked too if the transport is the first to say that somebody did: that need not know who.
inline bool wait_while_alive(Engine& engine, const std::function<bool()>& done, Seconds timeout,
                             const Engine::Interrupt& interrupt, const std::function<void()>& check_alive) {
  constexpr Seconds kCheckPeriod = 0.25;  // some system calls for each rank
  Seconds next_check = engine.transport().now() + kCheckPeriod;
  const auto look_around = [&] {
    if (interrupt) interrupt();
    if (engine.transport().now() < next_check) return;
    check_alive();
    next_check = engine.transport().now() + kCheckPeriod;
  };
  try {
    return engine.wait(done, timeout, look_around);
  } catch (const RankFailedError&) {
    check_alive();
    throw;
  }
}

}  // namespace pyc
