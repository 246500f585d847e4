// How much counts what a rank applies: in proportion to the time between its calls.
//
// Where all count alike, a rank that applies twice as often pulls the common model twice as strongly towards its own
// optimum: the models then agree on the minimum of a sum that is weighted by frequency. With this weight, T_i / mean T,
// each rank applies the same amount per second.
//
// The mean is known to nobody, but may be gossiped: two numbers follow the model, the sum of the intervals measured and
// how many there are. They are averaged as the model is, so their ratio tends to the mean over the ranks that have
// measured theirs (as in push-sum; Kempe, Dobra, Gehrke 2003). A new measurement adds what has changed.
#pragma once

#include <array>
#include <cstddef>

#include "core/types.h"

namespace pyc {

class Importance {
 public:
  static constexpr std::size_t kNumbers = 2;  // that follow the model

  /// A call at `now`: what it adds to the two numbers.
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

  /// Of this call, by the two numbers as they are now.
  double weight(const std::array<double, kNumbers>& gossiped) const {
    const bool is_known = interval_ > 0 && gossiped[0] > 0 && gossiped[1] > 0;
    return is_known ? interval_ * gossiped[1] / gossiped[0] : 1;
  }

 private:
  static constexpr Seconds kNever = -1;
  static constexpr double kNewest = 0.1;  // the share of the newest interval in the running mean

  Seconds last_ = kNever;
  Seconds interval_ = 0;
};

}  // namespace pyc
