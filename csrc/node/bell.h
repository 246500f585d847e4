// Waiting for an event across processes: a futex in shared memory. To ring it where nobody waits is two instructions.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "core/types.h"

namespace pyc {

class Bell {
 public:
  /// To be read before the condition is looked at the last time; see `wait`.
  std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }

  void ring() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) > 0) futex(FUTEX_WAKE, INT_MAX, nullptr);
  }

  /// Sleeps until it rings, unless it has rung since `seen` was read; at most `limit` seconds (less than one).
  void wait(std::uint32_t seen, Seconds limit) {
    // seq_cst: either the ringer sees this waiter, or the kernel sees the ringer's count.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    const timespec time{0, static_cast<long>(limit * 1e9)};
    futex(FUTEX_WAIT, seen, &time);
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  void futex(int operation, std::uint32_t value, const timespec* time) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), operation, value, time, nullptr, 0);
  }

  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> waiters_{0};
};
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

}  // namespace pyc
