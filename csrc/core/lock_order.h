// The order of locks (docs/design/progress.md). Builds with PYC_CHECK_LOCKS, such as those with sanitizers, end the
// process at the first lock out of order; in others an ordered lock is the lock itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pyc {

/// A thread takes locks in this order, and only one of each rank. It takes the GIL while it holds none of them.
enum class LockRank : std::uint8_t { kEngines, kProgress, kBoard, kPool, kRecorders, kRecorder, kUpdateCalls };

#ifdef PYC_CHECK_LOCKS

/// Aborts unless this thread may wait for a lock of this rank.
void check_order(LockRank rank);
/// Aborts if this thread holds one of these locks.
void check_none_held();
void note_taken(LockRank rank);
void note_released(LockRank rank);

template <LockRank kRank, class Mutex = std::mutex>
class Ordered : public Mutex {
 public:
  void lock() {
    check_order(kRank);
    Mutex::lock();
    note_taken(kRank);
  }
  bool try_lock() {
    const bool taken = Mutex::try_lock();
    if (taken) note_taken(kRank);
    return taken;
  }
  template <class Limit>
  bool try_lock_for(Limit limit) {
    check_order(kRank);
    const bool taken = Mutex::try_lock_for(limit);
    if (taken) note_taken(kRank);
    return taken;
  }
  void unlock() {
    note_released(kRank);
    Mutex::unlock();
  }
};

using OrderedCondition = std::condition_variable_any;

/// Lets this thread take the GIL with locks held.
class GilWithLocks {
 public:
  GilWithLocks();
  ~GilWithLocks();
  GilWithLocks(const GilWithLocks&) = delete;
  GilWithLocks& operator=(const GilWithLocks&) = delete;
};

#else

inline void check_none_held() {}

template <LockRank, class Mutex = std::mutex>
using Ordered = Mutex;

using OrderedCondition = std::condition_variable;

struct GilWithLocks {
  GilWithLocks() {}  // NOLINT(modernize-use-equals-default): otherwise it is an unused variable
};

#endif

}  // namespace pyc
