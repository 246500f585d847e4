// Pauses for a few dozen cycles of a spin wait, and leaves the core to its other hardware thread.
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
