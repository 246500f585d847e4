// A mutex in shared memory that survives its owner: if a process dies in its critical section the next one is told.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <new>
#include <string>

#include "core/error.h"
#include "core/types.h"
#include "node/lock_within.h"

namespace pyc {

class RobustMutex {
 public:
  RobustMutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    const int code = pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (code != 0) throw std::bad_alloc();
  }
  RobustMutex(const RobustMutex&) = delete;
  RobustMutex& operator=(const RobustMutex&) = delete;

  /// RankFailedError, now and for every later call: what the dead owner was changing is lost. If its owner is stopped,
  /// waits until it goes on, and says so on stderr.
  void lock() {
    int code = lock_soon(mutex_);
    if (code == EBUSY) code = lock_patiently();
    check(code);
  }

  /// The same; false if it could not be had within `limit` seconds (less than one): its owner may be stopped.
  bool try_lock_for(Seconds limit) {
    int code = lock_soon(mutex_);
    if (code == EBUSY) code = lock_later(limit);
    if (code == ETIMEDOUT) return false;
    check(code);
    return true;
  }

  /// Whether it is free within `limit` seconds (less than one).
  bool comes_free(Seconds limit);

  void unlock() { pthread_mutex_unlock(&mutex_); }

  /// Says on stderr who has it, and for how long this thread has waited.
  void warn(Seconds waited) const;

  static constexpr Seconds kPatience = 2;  ///< far longer than a critical section: to be warned of

 private:
  int lock_patiently();
  int lock_later(Seconds limit);
  void check(int code) {
    // Made consistent, though what it guards is not: glibc's trylock takes a mutex that is not recoverable and never
    // gives it back, so everybody else would wait for ever (seen with 2.36).
    if (code == EOWNERDEAD) {
      lost_ = true;
      code = pthread_mutex_consistent(&mutex_);
    }
    if (code != 0) throw InternalError("pthread_mutex_lock: error " + std::to_string(code));
    if (!lost_) return;
    pthread_mutex_unlock(&mutex_);
    throw RankFailedError("a rank of this node died while it changed what all of them share");
  }

  pthread_mutex_t mutex_{};
  bool lost_ = false;  // under the mutex
};

}  // namespace pyc
