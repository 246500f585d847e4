// A set of ranks as a bitmap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace pyc {

/// A view of a set of ranks that another object owns.
struct RankView {
  const std::uint64_t* words;
  std::size_t length;  // in words
  Rank members;

  bool contains(Rank rank) const {
    const auto word = static_cast<std::size_t>(rank) / 64;
    return word < length && ((words[word] >> (static_cast<unsigned>(rank) % 64)) & 1U) != 0;
  }
  Rank count() const { return members; }
  bool empty() const { return members == 0; }
};

class RankSet {
 public:
  operator RankView() const { return {words_.data(), words_.size(), count_}; }  // NOLINT(google-explicit-constructor)
  bool contains(Rank rank) const { return RankView(*this).contains(rank); }

  /// Returns whether the rank was new.
  bool insert(Rank rank) {
    if (contains(rank)) return false;
    if (word(rank) >= words_.size()) words_.resize(word(rank) + 1);
    words_[word(rank)] |= std::uint64_t{1} << bit(rank);
    ++count_;
    return true;
  }

  Rank count() const { return count_; }
  bool empty() const { return count_ == 0; }
  /// The ranks below `size` that are not in the set, ascending.
  std::vector<Rank> missing(Rank size) const {
    std::vector<Rank> ranks;
    for (Rank r = 0; r < size; ++r) {
      if (!contains(r)) ranks.push_back(r);
    }
    return ranks;
  }

 private:
  static std::size_t word(Rank rank) { return static_cast<std::size_t>(rank) / 64; }
  static unsigned bit(Rank rank) { return static_cast<unsigned>(rank) % 64; }

  std::vector<std::uint64_t> words_;  // as long as the highest member needs: an empty set allocates nothing
  Rank count_ = 0;
};

}  // namespace pyc
