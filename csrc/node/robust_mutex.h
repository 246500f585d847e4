// A mutex in shared memory that survives its owner: if a process dies in its critical section the next one is told.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <new>

#include "core/error.h"

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
    const int code = pthread_mutex_lock(&mutex_);
    if (code == 0) return;
    if (code == EOWNERDEAD) pthread_mutex_unlock(&mutex_);  // not made consistent: unusable for everybody
    throw RankFailedError("a rank of this node died while it changed what all of them share");
  }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_{};
};

}  // namespace pyc
