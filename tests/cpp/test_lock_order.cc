#include "core/lock_order.h"

#include "cpp_test.h"

#ifdef PYC_CHECK_LOCKS

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace pyc {
namespace {

using Progress = Ordered<LockRank::kProgress>;
using Pool = Ordered<LockRank::kPool>;

/// Whether `action` ends the process.
template <class Action>
bool aborts(Action action) {
  const pid_t child = fork();
  if (child == 0) {
    std::fclose(stderr);
    std::signal(SIGABRT, SIG_DFL);
    action();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

PYC_TEST(locks_are_taken_in_their_order) {
  Progress first;
  Progress second;
  Pool pool;
  const auto take = [](auto& outer, auto& inner) {
    const std::lock_guard holds_outer(outer);
    const std::lock_guard holds_inner(inner);
  };
  PYC_CHECK(!aborts([&] { take(first, pool); }));
  PYC_CHECK(aborts([&] { take(pool, first); }));
  PYC_CHECK(aborts([&] { take(first, second); }));
  PYC_CHECK(!aborts([&] {
    take(first, pool);
    take(second, pool);
  }));
  PYC_CHECK(!aborts([&] {  // a lock that is only tried
    const std::lock_guard holds(pool);
    if (first.try_lock()) first.unlock();
  }));
  PYC_CHECK(aborts([&] {  // ... and is held afterwards
    if (pool.try_lock()) first.lock();
  }));
}

PYC_TEST(no_lock_is_held_when_a_thread_waits_for_the_gil) {
  Pool pool;
  PYC_CHECK(!aborts([] { check_none_held(); }));
  PYC_CHECK(aborts([&] {
    const std::lock_guard holds(pool);
    check_none_held();
  }));
  PYC_CHECK(!aborts([&] {
    const std::lock_guard holds(pool);
    const GilWithLocks exception;
    check_none_held();
  }));
}

}  // namespace pyc

#endif
