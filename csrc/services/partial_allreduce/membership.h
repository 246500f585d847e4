// The ranks that have left a collective, as far as this rank knows: by `flush` until the next flush round, or by
// `close` permanently. The epoch is the number of flush rounds completed here. A rank announces the epoch in which it
// leaves, at most one ahead of ours, since the next flush round needs us.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rank_set.h"
#include "core/types.h"

namespace pyc {

class Membership {
 public:
  explicit Membership(Rank size) : size_(size) {}

  std::uint64_t epoch() const { return epoch_; }

  void leave(Rank rank, std::uint64_t epoch, bool closed) {
    if (closed) closed_.insert(rank);
    if (closed || epoch == epoch_) {
      left_.insert(rank);
    } else if (epoch > epoch_) {
      ahead_.push_back(rank);
    }
  }

  /// A flush round has completed: ranks that left to flush are back.
  void next_epoch() {
    ++epoch_;
    left_ = closed_;
    for (const Rank rank : ahead_) left_.insert(rank);
    ahead_.clear();
  }

  const RankSet& left() const { return left_; }
  const RankSet& closed() const { return closed_; }
  bool all_left() const { return left_.count() == size_; }

 private:
  Rank size_;
  std::uint64_t epoch_ = 0;
  RankSet left_;
  RankSet closed_;
  std::vector<Rank> ahead_;  // have left in the next epoch
};

}  // namespace pyc
