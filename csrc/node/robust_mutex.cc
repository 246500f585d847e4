#include "node/robust_mutex.h"

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/error.h"
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

void RobustMutex::refuse(int code) {
  // Made consistent although its data is not. Otherwise glibc's trylock takes an unrecoverable mutex and never
  // releases it, and all others wait indefinitely (seen with 2.36).
  if (code == EOWNERDEAD) {
    lost_ = true;
    code = pthread_mutex_consistent(&mutex_);
  }
  if (code != 0) throw InternalError("pthread_mutex_lock: error " + std::to_string(code));
  pthread_mutex_unlock(&mutex_);
  throw RankFailedError("a rank of this node died while it changed what all of them share");
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
