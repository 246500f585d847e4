// Who talks to whom: pure arithmetic on ranks, right for every number of ranks.
#pragma once

#include <algorithm>
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

/// The tree that reaches `size` ranks soonest if a rank sends to one other rank after another and what it begins to
/// send arrives `latency` sends later (Bar-Noy, Kipnis 1994, the postal model). With latency 1 it is a binomial tree,
/// with latency `size` a star. Rooted at rank 0; the ranks below a rank follow it without a gap.
class PostalTree {
 public:
  /// The latency of the tree that is called "tree": few steps.
  static constexpr Rank kFewSteps = 32;

  PostalTree(Rank rank, Rank size, Rank latency) {
    latency = std::min(latency, size);  // a star; above it too
    const std::vector<std::int64_t> reached = reach(size, latency);
    auto left = static_cast<Rank>(reached.size()) - 1;  // sends that fit into the time that `first` has left
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
  /// In the order of sending: the first has most ranks below it.
  const std::vector<Rank>& children() const { return children_; }

  /// By the number of messages on the way from the root to a rank, the most sends of their senders up to these
  /// messages.
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
  /// The number of ranks that are reached, by the number of sends.
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

/// A tree of `degree` children for each rank but the last ones, rooted at rank 0, in the order of levels.
class CompleteTree {
 public:
  constexpr CompleteTree(Rank rank, Rank degree) : rank_(rank), degree_(degree) {}
  constexpr bool is_root() const { return rank_ == 0; }
  constexpr Rank parent() const { return (rank_ - 1) / degree_; }

 private:
  Rank rank_;
  Rank degree_;
};

/// A binomial tree for any number of ranks, rooted anywhere. A rank's parent, counted from the root on, is the rank
/// without its lowest bit. A rank has at most ceil(log2 size) children, and the ranks below it follow it without a gap.
class BinomialTree {
 public:
  constexpr BinomialTree(Rank rank, Rank size, Rank root = 0)
      : place_(ring_neighbour(rank, -root, size)), size_(size), root_(root) {}

  constexpr bool is_root() const { return place_ == 0; }
  constexpr Rank parent() const { return ring_neighbour(place_ & (place_ - 1), root_, size_); }

  /// From the nearest to the farthest.
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
