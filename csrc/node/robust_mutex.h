// A mutex in shared memory that survives its owner: if a process dies in its critical section the next one is told.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <new>

#include "core/error.h"
#include "core/relax.h"

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

  /// RankFailedError, now and for every later call: what the dead owner was changing is lost.
  void lock() {
    // Held for a few instructions only: to be woken takes longer, unless its owner has lost its core.
    int code = pthread_mutex_trylock(&mutex_);
    for (int tries = 0; code == EBUSY && tries < kTries; ++tries) {
      relax();
      code = pthread_mutex_trylock(&mutex_);
    }
    if (code == EBUSY) code = pthread_mutex_lock(&mutex_);
    if (code == 0) return;
    if (code == EOWNERDEAD) pthread_mutex_unlock(&mutex_);  // not made consistent: unusable for everybody
    throw RankFailedError("a rank of this node died while it changed what all of them share");
  }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  static constexpr int kTries = 50;

  pthread_mutex_t mutex_{};
};

}  // namespace pyc
