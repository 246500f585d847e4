// Waiting for an event across processes: a futex in shared memory. Ringing without waiters takes two instructions.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/types.h"

namespace pyc {

class EventCount {
 public:
  /// Throws std::runtime_error if the system has no futex: waiting would burn a core.
  void check() {
    if (futex(FUTEX_WAIT, rings_.load() - 1, nullptr) == 0 || errno == EAGAIN || errno == EINTR) return;
    throw std::runtime_error(std::string("futex: ") + std::strerror(errno) + "; ranks_per_node=1 works without");
  }

  /// Read this before the last look at the condition; see `wait`.
  std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }

  void ring() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) > 0) futex(FUTEX_WAKE, INT_MAX, nullptr);
  }

  /// For an event that waiters can see (`wait_unless`). Reads a word that is written only when a thread sleeps.
  void ring_if_awaited() {
    if (waiters_.load(std::memory_order_seq_cst) > 0) ring();
  }

  /// Sleeps until it rings, for at most `limit` seconds (less than one). Returns at once if it has rung since `seen`.
  void wait(std::uint32_t seen, Seconds limit) {
    wait_unless([] { return false; }, seen, limit);
  }

  /// Also returns if the event that precedes `ring_if_awaited` has happened. Both are sequentially consistent: either
  /// `has_come` sees the event, or the ringer sees this waiter.
  template <class HasCome>
  void wait_unless(const HasCome& has_come, std::uint32_t seen, Seconds limit) {
    // seq_cst: either the ringer sees this waiter, or the kernel sees the ringer's count.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (!has_come()) {
      const timespec time{0, static_cast<long>(limit * 1e9)};
      futex(FUTEX_WAIT, seen, &time);
    }
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  long futex(int operation, std::uint32_t value, const timespec* time) {
    return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), operation, value, time, nullptr, 0);
  }

  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> waiters_{0};
};
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

}  // namespace pyc
