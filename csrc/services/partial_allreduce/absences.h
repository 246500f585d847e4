// Which ranks' data was absent from the rounds that a rank has received. The records of rounds have it, so no message
// is needed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/types.h"
#include "services/partial_allreduce/round.h"

namespace pyc {

class Absences {
 public:
  struct OfRank {
    Rank rank = kNoRank;
    std::uint64_t rounds = 0;
    std::uint64_t longest = 0;  ///< the most rounds in a row
  };

  explicit Absences(Rank size) : size_(size) {}

  /// The application receives a round. A round that it received before counts once.
  void note(const RoundInfo& info) {
    if (info.round < next_ || info.contributors.size() == 0) return;
    next_ = info.round + 1;
    ++received_;
    if (info.contributor_count == static_cast<std::uint32_t>(size_)) return;
    const std::lock_guard lock(mutex_);
    if (of_.empty()) of_.resize(static_cast<std::size_t>(size_));
    for (std::size_t w = 0; w < info.contributors.size(); ++w) {
      std::uint64_t absent = ~info.contributors[w];
      const std::size_t first = 64 * w;
      if (first + 64 > of_.size()) absent &= (std::uint64_t{1} << (of_.size() - first)) - 1;
      for (; absent != 0; absent &= absent - 1) note(of_[first + static_cast<std::size_t>(std::countr_zero(absent))]);
    }
  }

  /// The ranks that were absent, ascending. Any thread may call it.
  std::vector<OfRank> all() const {
    std::vector<OfRank> found;
    const std::lock_guard lock(mutex_);
    for (std::size_t r = 0; r < of_.size(); ++r) {
      if (of_[r].rounds > 0) found.push_back({static_cast<Rank>(r), of_[r].rounds, of_[r].longest});
    }
    return found;
  }

 private:
  struct Count {
    std::uint64_t rounds = 0, longest = 0, in_row = 0;
    std::uint64_t last = 0;  // the newest one, as a value of `received_`
  };

  void note(Count& count) const {
    count.in_row = count.last + 1 == received_ ? count.in_row + 1 : 1;
    count.last = received_;
    ++count.rounds;
    count.longest = std::max(count.longest, count.in_row);
  }

  const Rank size_;
  RoundNumber next_ = 0;        // the rounds before it are counted
  std::uint64_t received_ = 0;  // rounds
  std::vector<Count> of_;       // by rank; empty until one was absent
  mutable std::mutex mutex_;
};

}  // namespace pyc
