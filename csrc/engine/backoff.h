// Waits without burning a core: looks again a few times, then yields, then naps. Naps grow up to a five-hundredth of
// the time since something last moved. With more ranks than cores, yielding early lets the awaited rank run.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "core/types.h"

namespace pyc {

class Backoff {
 public:
  /// For one of `ranks` ranks that share this machine. Waking from a nap costs about 5 us of CPU, so where many ranks
  /// share a core they must look less often.
  explicit Backoff(Rank ranks) : Backoff(ranks, std::thread::hardware_concurrency()) {}

  void reset() {
    idle_ = 0;
    nap_ = kFirstNap;
    slept_ = 0;
  }

  /// Sleeps until there is work, at most for the given seconds. Returns false at once if nothing would wake the thread.
  using Sleep = std::function<bool(Seconds)>;

  /// `near`: a round is under way and its next message is expected soon, so this is no time to sleep.
  void pause(bool near, const Sleep& sleep = {}) {
    if (near && !near_) reset();  // another thread has started a round
    near_ = near;
    idle_ = std::min(idle_ + 1, kNear + 1);
    if (idle_ <= kLooks) return;
    const bool yields = idle_ <= (near ? kYieldsWhileNear : kYields);
    if (sleep && !near && (crowded_ || !yields) && sleep(longest_nap())) {
      slept_ += longest_nap();
      return;
    }
    if (yields) {
      sched_yield();
      return;
    }
    if (near && idle_ <= kNear) return nap(kNapWhileNear);
    nap(nap_);
    slept_ += nap_;
    nap_ = std::min(2 * nap_, longest_nap());
  }

  /// `duration` is less than a second.
  static void nap(Seconds duration) {
    const timespec time{0, static_cast<long>(duration * 1e9)};
    nanosleep(&time, nullptr);
  }

 private:
  static constexpr int kLooks = 2;
  static constexpr int kYields = 20;
  static constexpr int kYieldsWhileNear = 300;
  static constexpr int kNear = 400;  // a message that has not arrived by then waits for a rank that computes
  static constexpr Seconds kFirstNap = 10e-6;
  static constexpr Seconds kNapWhileNear = 20e-6;
  static constexpr Seconds kLongestNap = 2e-3;

  Backoff(Rank ranks, unsigned cores)
      : crowded_(static_cast<unsigned>(ranks) > cores), usual_nap_(usual_nap(ranks, cores)) {}

  static Seconds usual_nap(Rank ranks, unsigned cores) {
    constexpr Seconds kPerRankOnACore = 75e-6;  // looks then take about a tenth of each core
    return std::clamp(kPerRankOnACore * ranks / std::max(cores, 1U), 100e-6, 400e-6);
  }

  Seconds longest_nap() const { return std::clamp(slept_ / 500, usual_nap_, kLongestNap); }

  bool crowded_;  // yielding costs more than being woken
  Seconds usual_nap_;
  int idle_ = 0;
  bool near_ = false;
  Seconds nap_ = kFirstNap;
  Seconds slept_ = 0;  // since something last moved
};

}  // namespace pyc
