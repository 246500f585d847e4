#include "node/robust_mutex.h"

#include <cstdint>
#include <cstdio>

#include "node/process.h"

namespace pyc {
namespace {

constexpr Seconds kLook = 0.5;

/// The thread ID of the owner; 0 if there is none, or if it is unknown.
std::int32_t owner_of(const pthread_mutex_t& mutex) {
#if defined(__GLIBC__)
  return __atomic_load_n(&mutex.__data.__owner, __ATOMIC_RELAXED);
#else
  static_cast<void>(mutex);
  return 0;
#endif
}

}  // namespace

void RobustMutex::warn(Seconds waited) const {
  const std::int32_t owner = owner_of(mutex_);
  if (owner == 0) return;  // it is free by now
  const bool is_stopped = state_of({.number = owner}) == ProcessState::kStopped;
  std::fprintf(stderr,
               "pycollectives: waiting for %.0f s for process %d, which %s while it changed what the ranks of its "
               "machine share\n",
               waited, static_cast<int>(owner), is_stopped ? "was stopped" : "has not got on");
}

bool RobustMutex::comes_free(Seconds limit) {
  if (owner_of(mutex_) == 0) return true;  // avoids a write to its cache line
  if (!try_lock_for(limit)) return false;
  unlock();
  return true;
}

int RobustMutex::lock_later(Seconds limit) { return lock_within(mutex_, limit); }

int RobustMutex::lock_patiently() {
  Seconds warn_at = kPatience;
  for (Seconds waited = kLook;; waited += kLook) {
    const int code = lock_within(mutex_, kLook);
    if (code != ETIMEDOUT) return code;
    if (waited < warn_at) continue;
    warn(waited);
    warn_at *= 2;
  }
}

}  // namespace pyc
