// The weight of a rank's changes, in proportion to the time between its calls.
//
// With equal weights, a rank that applies twice as often pulls the common model twice as strongly towards its own
// optimum, and the models agree on the minimum of a sum weighted by frequency. With the weight T_i / mean T, each rank
// applies the same amount per second.
//
// No rank knows the mean, so it is gossiped. Two numbers follow the model: the sum of the measured intervals, and their
// count. Averages treat them as part of the model, so their ratio tends to the mean over the ranks with an interval (as
// in push-sum; Kempe, Dobra, Gehrke 2003). A new measurement adds its change.
#pragma once

#include <array>
#include <cstddef>

#include "core/types.h"

namespace pyc {

class Importance {
 public:
  static constexpr std::size_t kNumbers = 2;  // the numbers that follow the model

  /// Returns the change of the two numbers by a call at `now`.
  std::array<double, kNumbers> measure(Seconds now) {
    const bool is_first = last_ == kNever;
    const Seconds passed = now - last_;
    last_ = now;
    if (is_first) return {0, 0};
    const bool is_new = interval_ == 0;
    const Seconds before = interval_;
    interval_ = is_new ? passed : interval_ + kNewest * (passed - interval_);
    return {interval_ - before, is_new ? 1.0 : 0.0};
  }

  /// The weight of this call, from the current two numbers; 1 while they are unknown.
  double weight(const std::array<double, kNumbers>& gossiped) const {
    const bool is_known = interval_ > 0 && gossiped[0] > 0 && gossiped[1] > 0;
    return is_known ? interval_ * gossiped[1] / gossiped[0] : 1;
  }

 private:
  static constexpr Seconds kNever = -1;
  static constexpr double kNewest = 0.1;  // weight of the newest interval in the running mean

  Seconds last_ = kNever;
  Seconds interval_ = 0;
};

}  // namespace pyc
