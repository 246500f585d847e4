// Waiting for another core, for a few dozen cycles in which the other thread of this core may go ahead.
#pragma once

namespace pyc {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace pyc
