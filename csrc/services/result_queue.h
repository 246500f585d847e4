// The rounds that have completed at this rank and that its application has not been given yet, oldest first.
// Guarded by the owner's mutex.
//
// In "latest" mode only the newest is worth keeping, and the one that a waiting call was promised. In "sum" mode the
// newest `history` + 1 are kept as they are; older ones are folded into one running total, so that however far a rank
// falls behind, memory is bounded and nothing is lost.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "services/round.h"

namespace pyc {

class ResultQueue {
 public:
  ResultQueue(bool sums, std::size_t history) : sums_(sums), capacity_(history + 1) {}

  /// `promised` tells whether a waiting call needs this record kept.
  template <class Promised>
  void push(RoundRecord record, Promised promised) {
    if (!sums_) std::erase_if(records_, [&](const RoundRecord& other) { return !promised(other); });
    records_.push_back(std::move(record));
  }

  /// The record to fold into the running total, if there are too many.
  std::optional<RoundRecord> overflow() {
    if (!sums_ || records_.size() <= capacity_) return std::nullopt;
    return pop();
  }

  /// The oldest record up to `round`.
  std::optional<RoundRecord> pop_until(RoundNumber round) {
    if (records_.empty() || records_.front().round() > round) return std::nullopt;
    return pop();
  }

  bool holds(RoundNumber round) const {
    return std::any_of(records_.begin(), records_.end(), [&](const auto& record) { return record.round() == round; });
  }
  const RoundRecord& newest() const { return records_.back(); }

 private:
  RoundRecord pop() {
    RoundRecord oldest = std::move(records_.front());
    records_.pop_front();
    return oldest;
  }

  bool sums_;
  std::size_t capacity_;
  std::deque<RoundRecord> records_;
};

}  // namespace pyc
