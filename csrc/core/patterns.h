// Who talks to whom: pure arithmetic on ranks, right for every number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace pyc {

/// The rank `distance` places to the right (or, if negative, to the left) on a ring of `size`.
constexpr Rank ring_neighbour(Rank rank, Rank distance, Rank size) { return ((rank + distance) % size + size) % size; }

/// Splits `size` ranks into a core of 2^k ranks and extras. Each extra is folded onto a partner in the core, which
/// stands in for it, so that an algorithm for a power of two serves every size. With e extras, the ranks 0..2e-1 form
/// pairs (even: core, odd: extra) and the ranks from 2e on are core.
class Fold {
 public:
  constexpr Fold(Rank rank, Rank size) : rank_(rank) {
    while (core_ <= size / 2) core_ *= 2;
    extras_ = size - core_;
  }
  constexpr bool is_extra() const { return rank_ < 2 * extras_ && rank_ % 2 == 1; }
  constexpr bool has_extra() const { return rank_ < 2 * extras_ && rank_ % 2 == 0; }
  constexpr Rank partner() const { return is_extra() ? rank_ - 1 : rank_ + 1; }

  /// Number of ranks in the core.
  constexpr Rank core_size() const { return core_; }
  /// This rank's number within the core, 0 <= core_rank() < core_size(); not for extras.
  constexpr Rank core_rank() const { return rank_ < 2 * extras_ ? rank_ / 2 : rank_ - extras_; }
  /// The rank that has number `core` within the core.
  constexpr Rank to_rank(Rank core) const { return core < extras_ ? core * 2 : core + extras_; }

 private:
  Rank rank_;
  Rank core_ = 1;
  Rank extras_ = 0;
};

/// A k-nomial tree rooted at rank 0, for any number of ranks. Written in base k, a rank's parent is the rank without
/// its lowest non-zero digit; so its children set one digit below that. The depth is the number of digits of size - 1.
class KnomialTree {
 public:
  constexpr KnomialTree(Rank rank, Rank size, Rank radix) : rank_(rank), size_(size), radix_(radix) {}

  constexpr bool is_root() const { return rank_ == 0; }
  constexpr Rank parent() const { return rank_ - rank_ / span() % radix_ * span(); }

  /// From the nearest to the farthest.
  std::vector<Rank> children() const {
    std::vector<Rank> all;
    const std::int64_t end = is_root() ? size_ : span();
    for (std::int64_t place = 1; place < end; place *= radix_) {
      for (Rank digit = 1; digit < radix_; ++digit) {
        if (rank_ + digit * place < size_) all.push_back(static_cast<Rank>(rank_ + digit * place));
      }
    }
    return all;
  }

 private:
  /// The place value of the lowest non-zero digit.
  constexpr Rank span() const {
    Rank place = 1;
    while (!is_root() && rank_ / place % radix_ == 0) place *= radix_;
    return place;
  }

  Rank rank_;
  Rank size_;
  Rank radix_;
};

/// A binomial tree for any number of ranks, rooted anywhere. A rank has at most ceil(log2 size) children, and the ranks
/// below it follow it without a gap, counted from the root on.
class BinomialTree {
 public:
  constexpr BinomialTree(Rank rank, Rank size, Rank root = 0)
      : tree_(ring_neighbour(rank, -root, size), size, 2), size_(size), root_(root) {}

  constexpr bool is_root() const { return tree_.is_root(); }
  constexpr Rank parent() const { return ring_neighbour(tree_.parent(), root_, size_); }

  /// From the nearest to the farthest.
  std::vector<Rank> children() const {
    std::vector<Rank> all = tree_.children();
    for (Rank& child : all) child = ring_neighbour(child, root_, size_);
    return all;
  }

 private:
  KnomialTree tree_;
  Rank size_;
  Rank root_;
};

/// An interval of elements.
struct Interval {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `count` elements cut into `parts` parts whose lengths differ by at most one.
constexpr Interval balanced_part(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t base = count / parts;
  const std::size_t longer = count % parts;  // the first `longer` parts hold one element more
  return {index * base + (index < longer ? index : longer), base + (index < longer ? 1 : 0)};
}

}  // namespace pyc
