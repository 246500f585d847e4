// Which ranks of a communicator work together in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/types.h"

namespace pyc {

/// Nodes are numbered from 0 without gaps, in the order of their lowest ranks. The lowest rank of a node is its
/// *agent*: its engine speaks for the node.
class Nodes {
 public:
  /// `node_of[r]` is the node of rank r.
  explicit Nodes(std::vector<Rank> node_of) : node_of_(std::move(node_of)) {
    const Rank count = node_of_.empty() ? 0 : 1 + *std::max_element(node_of_.begin(), node_of_.end());
    ranks_.resize(static_cast<std::size_t>(count));
    for (std::size_t r = 0; r < node_of_.size(); ++r) {
      ranks_[static_cast<std::size_t>(node_of_[r])].push_back(static_cast<Rank>(r));
    }
    for (const std::vector<Rank>& ranks : ranks_) agents_.push_back(ranks.front());
  }

  /// Every rank a node of its own: all goes by messages.
  static Nodes of_single_ranks(Rank size) {
    std::vector<Rank> node_of;
    for (Rank r = 0; r < size; ++r) node_of.push_back(r);
    return Nodes(std::move(node_of));
  }

  Rank size() const { return static_cast<Rank>(node_of_.size()); }
  Rank count() const { return static_cast<Rank>(ranks_.size()); }
  Rank of(Rank rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  const std::vector<Rank>& ranks(Rank node) const { return ranks_[static_cast<std::size_t>(node)]; }
  /// The ranks of its node, ascending, and its place among them.
  const std::vector<Rank>& neighbours(Rank rank) const { return ranks(of(rank)); }
  std::size_t place_of(Rank rank) const {
    const std::vector<Rank>& all = neighbours(rank);
    return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin());
  }
  std::vector<std::size_t> places_of(const std::vector<Rank>& ranks) const {
    std::vector<std::size_t> places;
    for (const Rank rank : ranks) places.push_back(place_of(rank));
    return places;
  }
  Rank agent(Rank node) const { return agents_[static_cast<std::size_t>(node)]; }
  /// By node.
  const std::vector<Rank>& agents() const { return agents_; }

 private:
  std::vector<Rank> node_of_;
  std::vector<std::vector<Rank>> ranks_;
  std::vector<Rank> agents_;
};

}  // namespace pyc
