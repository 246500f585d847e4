// pthread mutexes in memory that processes share, and locking one for a limited time.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <new>

#include "core/relax.h"
#include "core/types.h"

// pthread_mutex_clocklock exists since glibc 2.30. ThreadSanitizer of GCC 12 does not know it.
#if defined(__GLIBC_PREREQ) && !defined(__SANITIZE_THREAD__)
#if __GLIBC_PREREQ(2, 30)
#define PYC_LOCKS_BY_ANY_CLOCK
#endif
#endif

namespace pyc {

/// After its owner has died, the next one gets EOWNERDEAD.
inline void make_shared(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int code = pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (code != 0) throw std::bad_alloc();
}

/// Tries pthread_mutex_trylock some times: these mutexes are held for a few instructions, and a wake-up takes longer.
inline int lock_soon(pthread_mutex_t& mutex) {
  constexpr int kTries = 50;
  int code = pthread_mutex_trylock(&mutex);
  for (int tries = 0; code == EBUSY && tries < kTries; ++tries) {
    relax();
    code = pthread_mutex_trylock(&mutex);
  }
  return code;
}

/// Like pthread_mutex_timedlock, but for `limit` seconds (less than one) from now.
inline int lock_within(pthread_mutex_t& mutex, Seconds limit) {
  constexpr long kSecond = 1000000000;
  if (const int code = lock_soon(mutex); code != EBUSY) return code;
#if defined(PYC_LOCKS_BY_ANY_CLOCK)
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#else
  constexpr clockid_t kClock = CLOCK_REALTIME;  // waits longer if the clock is set back
#endif
  timespec until{};
  clock_gettime(kClock, &until);
  until.tv_nsec += static_cast<long>(limit * 1e9);
  if (until.tv_nsec >= kSecond) {
    ++until.tv_sec;
    until.tv_nsec -= kSecond;
  }
#if defined(PYC_LOCKS_BY_ANY_CLOCK)
  return pthread_mutex_clocklock(&mutex, kClock, &until);
#else
  return pthread_mutex_timedlock(&mutex, &until);
#endif
}

}  // namespace pyc
