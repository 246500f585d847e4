// The order of locks (docs/design/progress.md). Builds with PYC_CHECK_LOCKS, such as those with sanitizers, end the
// process at the first lock out of order; in others an ordered lock is the lock itself.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace pyc {

/// A thread takes locks in this order, and only one of each rank. It takes the GIL while it holds none of them.
enum class LockRank : std::uint8_t { kEngines, kProgress, kBoard, kPool, kRecorders, kRecorder, kUpdateCalls };

#ifdef PYC_CHECK_LOCKS

/// The locks that this thread holds.
class LocksHeld {
 public:
  static LocksHeld& here() {
    static thread_local LocksHeld held;
    return held;
  }

  /// Aborts unless this thread may wait for a lock of this rank.
  void check(LockRank rank) const { check_from(index(rank), kNames[index(rank)]); }
  /// Aborts if this thread holds one of these locks.
  void check_none() const {
    if (exceptions == 0) check_from(0, "Python");
  }
  void take(LockRank rank) { ++counts_[index(rank)]; }
  void release(LockRank rank) { --counts_[index(rank)]; }

  int exceptions = 0;

 private:
  static constexpr std::array kNames{"the list of engines", "progress",          "a board",           "a pool",
                                     "the recorders",       "a flight recorder", "calls of an update"};
  static std::size_t index(LockRank rank) { return static_cast<std::size_t>(rank); }

  void check_from(std::size_t first, const char* wanted) const {
    for (std::size_t rank = first; rank < counts_.size(); ++rank) {
      if (counts_[rank] == 0) continue;
      std::fprintf(stderr, "pycollectives: a thread that holds the lock of %s takes the lock of %s\n", kNames[rank],
                   wanted);
      std::abort();
    }
  }

  std::array<int, kNames.size()> counts_{};
};

inline void check_none_held() { LocksHeld::here().check_none(); }

template <LockRank kRank, class Mutex = std::mutex>
class Ordered : public Mutex {
 public:
  void lock() {
    LocksHeld::here().check(kRank);
    Mutex::lock();
    LocksHeld::here().take(kRank);
  }
  bool try_lock() {
    const bool taken = Mutex::try_lock();
    if (taken) LocksHeld::here().take(kRank);
    return taken;
  }
  template <class Limit>
  bool try_lock_for(Limit limit) {
    LocksHeld::here().check(kRank);
    const bool taken = Mutex::try_lock_for(limit);
    if (taken) LocksHeld::here().take(kRank);
    return taken;
  }
  void unlock() {
    LocksHeld::here().release(kRank);
    Mutex::unlock();
  }
};

using OrderedCondition = std::condition_variable_any;

/// Lets this thread take the GIL with locks held.
class GilWithLocks {
 public:
  GilWithLocks() { ++LocksHeld::here().exceptions; }
  ~GilWithLocks() { --LocksHeld::here().exceptions; }
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
