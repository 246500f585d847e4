// A call that waits for other ranks says so on stderr after a while, whatever its time limit: of a hang in silence
// nothing tells where it is. It says so again whenever the wait has become twice as long.
#pragma once

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace pyc {

/// `wait(limit)`: waits for at most `limit` seconds (negative: for ever), and returns whether what it waits for is
/// there. `explain()`: a text for the warning; empty if that is left to another rank.
template <class Wait, class Explain>
bool wait_and_warn(Engine& engine, Seconds timeout, const Wait& wait, const Explain& explain) {
  Seconds warn_at = engine.stall_warning();
  if (warn_at < 0 || (timeout >= 0 && timeout <= warn_at)) return wait(timeout);
  const Seconds start = engine.transport().now();
  for (;;) {
    const Seconds waited = engine.transport().now() - start;
    if (timeout >= 0 && timeout <= warn_at) return wait(std::max(timeout - waited, 0.0));
    if (wait(std::max(warn_at - waited, 0.0))) return true;
    const std::string text = explain();
    if (wait(0)) return true;
    if (!text.empty()) engine.warn(text);
    warn_at *= 2;
  }
}

}  // namespace pyc
