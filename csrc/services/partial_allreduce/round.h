// What is known of a completed round, and what a call is told about it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

/// A bitmap over ranks, 64 to a word. Up to 128 ranks it lies in the object: a copy allocates nothing.
class RankBits {
 public:
  void assign(const std::uint64_t* words, std::size_t count) {
    size_ = count;
    if (count > kNear) return far_.assign(words, words + count);
    for (std::size_t w = 0; w < count; ++w) near_[w] = words[w];
  }
  std::span<const std::uint64_t> words() const { return {size_ > kNear ? far_.data() : near_.data(), size_}; }
  std::size_t size() const { return size_; }
  std::uint64_t operator[](std::size_t word) const { return words()[word]; }

 private:
  static constexpr std::size_t kNear = 2;

  std::size_t size_ = 0;
  std::array<std::uint64_t, kNear> near_{};
  std::vector<std::uint64_t> far_;
};

/// What a call is told (RoundInfo in docs/semantics.md).
struct RoundInfo {
  RoundNumber round = 0;
  Rank initiator = kNoRank;
  bool included = false;
  std::uint32_t contributor_count = 0;
  RankBits contributors;  ///< empty if not tracked
  std::uint32_t active = 0;
  std::uint64_t staleness = 0;
  std::uint64_t missed = 0;
  bool overrun = false;

  std::vector<Rank> contributor_list() const {
    std::vector<Rank> ranks;
    for (std::size_t w = 0; w < contributors.size(); ++w) {
      for (std::uint64_t bits = contributors[w]; bits != 0; bits &= bits - 1) {
        ranks.push_back(static_cast<Rank>(64 * w) + std::countr_zero(bits));
      }
    }
    return ranks;
  }
};

/// One contribution, or one flush, and the round that it waits for.
struct Call {
  RoundNumber round = 0;       ///< that completes it; of a flush known only then
  std::uint64_t sequence = 0;  ///< of this rank's contributions, from 1
  bool late = false;
  bool flush = false;
  std::uint64_t epoch = 0;  ///< of a flush
  Seconds made = 0;         ///< when
  bool done = false;        ///< `info` says how its round went
  bool given = false;       ///< the application has been given its round
  RoundInfo info;
};

}  // namespace pyc
