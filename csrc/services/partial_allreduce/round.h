// A completed round, as the calls of a rank receive it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

/// A bitmap of ranks, 64 to a word. For up to 128 ranks, a copy allocates nothing.
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

/// The result of a call (RoundInfo in docs/semantics.md).
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

struct Call {
  RoundNumber round = 0;       ///< completes the call; of a flush, known only then
  std::uint64_t sequence = 0;  ///< of this rank's contributions, from 1
  bool late = false;
  bool flush = false;
  std::uint64_t epoch = 0;  ///< of a flush: flush rounds completed before it
  Seconds made = 0;         ///< time of the call
  bool done = false;        ///< `info` describes its round
  bool given = false;       ///< the application has received its round
  RoundInfo info;
};

}  // namespace pyc
