// A mutex in shared memory for data that is valid in any state. If a process dies in the critical section, the next
// owner continues with its partial changes. Locking has a time limit, because an owner may be stopped.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <string>

#include "core/error.h"
#include "core/types.h"
#include "node/lock_within.h"

namespace pyc {

class TimedMutex {
 public:
  TimedMutex() { make_shared(mutex_); }
  TimedMutex(const TimedMutex&) = delete;
  TimedMutex& operator=(const TimedMutex&) = delete;

  bool try_lock() { return is_held(pthread_mutex_trylock(&mutex_)); }

  /// False after `limit` seconds (less than one).
  bool try_lock_for(Seconds limit) { return is_held(lock_within(mutex_, limit)); }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  bool is_held(int code) {
    if (code == EOWNERDEAD) code = pthread_mutex_consistent(&mutex_);
    if (code == EBUSY || code == ETIMEDOUT) return false;
    if (code != 0) throw InternalError("locking what ranks share: error " + std::to_string(code));
    return true;
  }

  pthread_mutex_t mutex_{};
};

}  // namespace pyc
