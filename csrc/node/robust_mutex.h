// A mutex in shared memory that survives its owner: if a process dies in the critical section, later calls throw.
#pragma once

#include <pthread.h>

#include <cerrno>

#include "core/hot.h"
#include "core/types.h"
#include "node/lock_within.h"

namespace pyc {

class RobustMutex {
 public:
  RobustMutex() { make_shared(mutex_); }
  RobustMutex(const RobustMutex&) = delete;
  RobustMutex& operator=(const RobustMutex&) = delete;

  /// Throws RankFailedError, now and in every later call, if an owner has died: its changes are incomplete. If the
  /// owner is stopped, waits until it continues, and warns on stderr.
  PYC_HOT void lock() {
    int code = lock_soon(mutex_);
    if (code == EBUSY) code = lock_patiently();
    check(code);
  }

  /// The same, but false after `limit` seconds (less than one): the owner may be stopped.
  PYC_HOT bool try_lock_for(Seconds limit) {
    int code = lock_soon(mutex_);
    if (code == EBUSY) code = lock_later(limit);
    if (code == ETIMEDOUT) return false;
    check(code);
    return true;
  }

  bool comes_free(Seconds limit);

  PYC_HOT void unlock() { pthread_mutex_unlock(&mutex_); }

  /// Reports the owner and the time that this thread has waited on stderr.
  void warn(Seconds waited) const;

  static constexpr Seconds kPatience = 2;  ///< far longer than a critical section: worth a warning

 private:
  int lock_patiently();
  int lock_later(Seconds limit);
  void check(int code) {
    if (code != 0 || lost_) refuse(code);
  }
  [[noreturn]] void refuse(int code);

  pthread_mutex_t mutex_{};
  bool lost_ = false;  // under the mutex
};

}  // namespace pyc
