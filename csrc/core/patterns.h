// Communication patterns: pure arithmetic on ranks, valid for every number of ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace pyc {

constexpr Rank ring_neighbour(Rank rank, Rank distance, Rank size) { return ((rank + distance) % size + size) % size; }

/// Splits `size` ranks into a core of 2^k ranks and extras. A partner in the core stands in for each extra, so an
/// algorithm for powers of two works for every size. With e extras, the ranks 0..2e-1 form pairs (even: core, odd:
/// extra) and the ranks from 2e on are core.
class Fold {
 public:
  constexpr Fold(Rank rank, Rank size) : rank_(rank) {
    while (core_ <= size / 2) core_ *= 2;
    extras_ = size - core_;
  }
  constexpr bool is_extra() const { return rank_ < 2 * extras_ && rank_ % 2 == 1; }
  constexpr bool has_extra() const { return rank_ < 2 * extras_ && rank_ % 2 == 0; }
  constexpr Rank partner() const { return is_extra() ? rank_ - 1 : rank_ + 1; }

  constexpr Rank core_size() const { return core_; }
  /// This rank's index within the core, 0 <= core_rank() < core_size(). Undefined for extras.
  constexpr Rank core_rank() const { return rank_ < 2 * extras_ ? rank_ / 2 : rank_ - extras_; }
  constexpr Rank to_rank(Rank core) const { return core < extras_ ? core * 2 : core + extras_; }

 private:
  Rank rank_;
  Rank core_ = 1;
  Rank extras_ = 0;
};

/// The tree that reaches `size` ranks soonest if a rank sends to one rank after another and a message arrives `latency`
/// sends after its start (Bar-Noy, Kipnis 1994, the postal model). Latency 1 gives a binomial tree, latency `size` a
/// star. Rooted at rank 0; a subtree is a contiguous range of ranks that starts at its root.
class PostalTree {
 public:
  /// The latency of the tree that is called "tree", which takes few steps.
  static constexpr Rank kFewSteps = 32;

  PostalTree(Rank rank, Rank size, Rank latency) {
    latency = std::min(latency, size);  // beyond `size` it is the same star
    const std::vector<std::int64_t> reached = reach(size, latency);
    auto left = static_cast<Rank>(reached.size()) - 1;  // sends that fit into the remaining time of `first`
    for (Rank first = 0; first != rank;) {
      const auto next = static_cast<Rank>(first + reached[static_cast<std::size_t>(left - 1)]);
      if (rank < next) {
        --left;
      } else {
        parent_ = first;
        first = next;
        left -= latency;
      }
    }
    for (; left >= latency; --left) {
      const std::int64_t child = rank + reached[static_cast<std::size_t>(left - 1)];
      if (child < size) children_.push_back(static_cast<Rank>(child));
    }
  }

  bool is_root() const { return parent_ == kNoRank; }
  Rank parent() const { return parent_; }
  /// In the order of sending. The first child has the largest subtree.
  const std::vector<Rank>& children() const { return children_; }

  /// Element d is the largest number of sends along a path of d messages from the root. Each message counts as one
  /// send, plus one for each earlier send of its sender.
  static std::vector<Rank> longest_ways(Rank size, Rank latency) {
    latency = std::min(latency, size);
    const std::vector<std::int64_t> reached = reach(size, latency);
    struct Place {
      Rank rank;
      Rank left;
      std::size_t depth;
      Rank sends;
    };
    std::vector<Rank> longest;
    std::vector<Place> open{{0, static_cast<Rank>(reached.size()) - 1, 0, 0}};
    while (!open.empty()) {
      Place place = open.back();
      open.pop_back();
      if (longest.size() <= place.depth) longest.resize(place.depth + 1);
      longest[place.depth] = std::max(longest[place.depth], place.sends);
      for (Rank left = place.left; left >= latency; --left) {
        const std::int64_t child = place.rank + reached[static_cast<std::size_t>(left - 1)];
        if (child < size) open.push_back({static_cast<Rank>(child), left - latency, place.depth + 1, ++place.sends});
      }
    }
    return longest;
  }

 private:
  /// The number of ranks reached, indexed by time in sends.
  static std::vector<std::int64_t> reach(Rank size, Rank latency) {
    std::vector<std::int64_t> reached{1};
    const auto delay = static_cast<std::size_t>(latency);
    while (reached.back() < size) {
      const std::size_t time = reached.size();
      reached.push_back(reached.back() + (time >= delay ? reached[time - delay] : 0));
    }
    return reached;
  }

  Rank parent_ = kNoRank;
  std::vector<Rank> children_;
};

/// A tree in which each rank except the last ones has `degree` children. Rooted at rank 0, numbered by level.
class CompleteTree {
 public:
  constexpr CompleteTree(Rank rank, Rank degree) : rank_(rank), degree_(degree) {}
  constexpr bool is_root() const { return rank_ == 0; }
  constexpr Rank parent() const { return (rank_ - 1) / degree_; }

 private:
  Rank rank_;
  Rank degree_;
};

/// A binomial tree for any number of ranks and any root. Counted from the root, the parent of a rank is the rank
/// without its lowest set bit, and a subtree is a contiguous range. A rank has at most ceil(log2 size) children.
class BinomialTree {
 public:
  constexpr BinomialTree(Rank rank, Rank size, Rank root = 0)
      : place_(ring_neighbour(rank, -root, size)), size_(size), root_(root) {}

  constexpr bool is_root() const { return place_ == 0; }
  constexpr Rank parent() const { return ring_neighbour(place_ & (place_ - 1), root_, size_); }

  /// Nearest first.
  std::vector<Rank> children() const {
    std::vector<Rank> all;
    const std::int64_t end = is_root() ? size_ : place_ & -place_;
    for (std::int64_t distance = 1; distance < end && place_ + distance < size_; distance *= 2) {
      all.push_back(ring_neighbour(static_cast<Rank>(place_ + distance), root_, size_));
    }
    return all;
  }

 private:
  Rank place_;
  Rank size_;
  Rank root_;
};

struct Interval {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `count` elements that are split into `parts` parts. Their lengths differ by at most one.
constexpr Interval balanced_part(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t base = count / parts;
  const std::size_t longer = count % parts;  // the first `longer` parts have one more element
  return {index * base + (index < longer ? index : longer), base + (index < longer ? 1 : 0)};
}

}  // namespace pyc
