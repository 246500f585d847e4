// A mutex in shared memory for data of which any state is valid: a process that dies in its critical section leaves
// some of it changed and some not, and the next owner goes on with that. Who waits gives up after a while, for an
// owner may be stopped.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <new>
#include <string>

#include "core/error.h"
#include "core/relax.h"
#include "core/types.h"

// Since glibc 2.30; ThreadSanitizer of GCC 12 does not know it.
#if defined(__GLIBC_PREREQ) && !defined(__SANITIZE_THREAD__)
#if __GLIBC_PREREQ(2, 30)
#define PYC_LOCKS_BY_ANY_CLOCK
#endif
#endif

namespace pyc {

class TimedMutex {
 public:
  TimedMutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    const int code = pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (code != 0) throw std::bad_alloc();
  }
  TimedMutex(const TimedMutex&) = delete;
  TimedMutex& operator=(const TimedMutex&) = delete;

  bool try_lock() { return is_held(pthread_mutex_trylock(&mutex_)); }

  /// False if it could not be had within `limit` seconds (less than one).
  bool try_lock_for(Seconds limit) {
    for (int tries = 0; tries < kTries; ++tries) {
      if (try_lock()) return true;
      relax();
    }
    timespec until{};
    clock_gettime(kClock, &until);
    until.tv_nsec += static_cast<long>(limit * 1e9);
    if (until.tv_nsec >= kSecond) {
      ++until.tv_sec;
      until.tv_nsec -= kSecond;
    }
    return is_held(lock_until(until));
  }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  static constexpr int kTries = 50;
  static constexpr long kSecond = 1000000000;

#if defined(PYC_LOCKS_BY_ANY_CLOCK)
  static constexpr clockid_t kClock = CLOCK_MONOTONIC;
  int lock_until(const timespec& until) { return pthread_mutex_clocklock(&mutex_, kClock, &until); }
#else
  static constexpr clockid_t kClock = CLOCK_REALTIME;  // if it is set back meanwhile, this waits for longer
  int lock_until(const timespec& until) { return pthread_mutex_timedlock(&mutex_, &until); }
#endif

  bool is_held(int code) {
    if (code == EOWNERDEAD) code = pthread_mutex_consistent(&mutex_);
    if (code == EBUSY || code == ETIMEDOUT) return false;
    if (code != 0) throw InternalError("locking what ranks share: error " + std::to_string(code));
    return true;
  }

  pthread_mutex_t mutex_{};
};

}  // namespace pyc
