#include "services/partial_allreduce/board_wait.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "core/at_end.h"
#include "core/hot.h"
#include "core/relax.h"

namespace pyc {
namespace {

constexpr int kSpins = 1000;             // looks before a waiting rank yields, if every rank has a core
constexpr int kYields = 200;             // yields before a waiting rank sleeps
constexpr Seconds kLongestSleep = 0.05;  // between checks for interrupts and ended processes
constexpr Seconds kShortestSleep = 1e-4;
constexpr Seconds kCheckPeriod = 0.25;  // between complete checks for dead ranks: several system calls per rank

Rank usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

BoardWait::BoardWait(Engine& engine, std::shared_ptr<Board> board, const StallInspector& inspector, bool drives)
    : engine_(engine),
      board_(std::move(board)),
      inspector_(inspector),
      drives_(drives),
      spins_(engine.transport().local_ranks() <= usable_cores() ? kSpins : 0) {}

PYC_HOT void BoardWait::spin(const News& news) const {
  if (drives_) return;
  const RoundNumber completed = board_->completed();
  for (int spins = 0; spins < spins_; ++spins) {
    if (board_->completed() != completed || board_->round().offers_help() || news()) return;
    relax();
  }
}

bool BoardWait::until(const std::function<bool()>& done, Seconds timeout, const Engine::Interrupt& interrupt,
                      const News& news) const {
  std::atomic<bool>& waits = board_->ranks().own().waits;
  waits.store(true, std::memory_order_relaxed);
  const AtEnd has_waited([&] { waits.store(false, std::memory_order_relaxed); });
  const auto now = [this] { return engine_.transport().now(); };
  Seconds next_check = now() + kCheckPeriod;
  const auto look_around = [&] {
    if (interrupt) interrupt();
    inspector_.check_briefly();
    if (now() < next_check) return;
    inspector_.check_alive();
    next_check = now() + kCheckPeriod;
  };
  if (drives_) return engine_.wait(done, timeout, look_around);
  const Seconds start = now();
  Seconds next_look = start + kLongestSleep;
  for (int idle = 0;; ++idle) {
    const std::uint32_t rings = board_->events().rings();  // read before `done`: a later ring ends the sleep
    if (done()) return true;
    if (engine_.progress() == Progress::kCaller) engine_.advance();
    const Seconds waited = now() - start;
    if (timeout >= 0 && waited >= timeout) return false;
    if (start + waited >= next_look) {
      look_around();
      engine_.check();
      next_look = now() + kLongestSleep;
    }
    if (idle < kYields) {
      sched_yield();
      continue;
    }
    const Seconds limit = timeout >= 0 ? std::min(longest_sleep(), timeout - waited) : longest_sleep();
    board_->events().wait_unless(news, rings, limit);
  }
}

/// Limits how late this rank notices the end of a grace, which does not ring.
Seconds BoardWait::longest_sleep() const {
  const Seconds grace = board_->round().grace();
  return grace > 0 ? std::clamp(grace / 4, kShortestSleep, kLongestSleep) : kLongestSleep;
}

}  // namespace pyc
