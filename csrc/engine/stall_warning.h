// Lets a call that waits for other ranks warn on stderr after a while, whatever its time limit, because a silent hang
// does not show where it is. It warns again each time the wait has doubled.
#pragma once

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace pyc {

/// `wait(limit)` waits for at most `limit` seconds (negative: indefinitely) and returns whether it succeeded.
/// `explain()` returns the text of the warning; empty if another rank warns.
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
