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
    clock_gettime(CLOCK_REALTIME, &until);  // the clock of pthread_mutex_timedlock
    until.tv_nsec += static_cast<long>(limit * 1e9);
    if (until.tv_nsec >= kSecond) {
      ++until.tv_sec;
      until.tv_nsec -= kSecond;
    }
    return is_held(pthread_mutex_timedlock(&mutex_, &until));
  }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  static constexpr int kTries = 50;
  static constexpr long kSecond = 1000000000;

  bool is_held(int code) {
    if (code == EOWNERDEAD) code = pthread_mutex_consistent(&mutex_);
    if (code == EBUSY || code == ETIMEDOUT) return false;
    if (code != 0) throw InternalError("pthread_mutex_timedlock: error " + std::to_string(code));
    return true;
  }

  pthread_mutex_t mutex_{};
};

}  // namespace pyc
