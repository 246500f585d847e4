// Which ranks of a communicator work together in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/types.h"

namespace pyc {

/// Nodes are numbered from 0 without gaps, in the order of their lowest ranks. The lowest rank of a node is its
/// *leader*: its engine speaks for the node. Copies share their tables: those of all ranks may be in one process.
class Nodes {
 public:
  /// `node_of[r]` is the node of rank r.
  explicit Nodes(std::vector<Rank> node_of) : tables_(std::make_shared<const Tables>(std::move(node_of))) {}

  /// Every rank a node of its own: all goes by messages.
  static Nodes of_single_ranks(Rank size) {
    std::vector<Rank> node_of;
    for (Rank r = 0; r < size; ++r) node_of.push_back(r);
    return Nodes(std::move(node_of));
  }

  Rank size() const { return static_cast<Rank>(tables_->node_of.size()); }
  Rank count() const { return static_cast<Rank>(tables_->ranks.size()); }
  Rank of(Rank rank) const { return tables_->node_of[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  const std::vector<Rank>& ranks(Rank node) const { return tables_->ranks[static_cast<std::size_t>(node)]; }
  /// The ranks of its node, ascending, and its number among them.
  const std::vector<Rank>& neighbours(Rank rank) const { return ranks(of(rank)); }
  std::size_t local_rank_of(Rank rank) const {
    const std::vector<Rank>& all = neighbours(rank);
    return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin());
  }
  std::vector<std::size_t> local_ranks_of(const std::vector<Rank>& ranks) const {
    std::vector<std::size_t> local;
    for (const Rank rank : ranks) local.push_back(local_rank_of(rank));
    return local;
  }
  Rank leader(Rank node) const { return tables_->leaders[static_cast<std::size_t>(node)]; }
  /// Whether `rank` speaks for its node to others.
  bool is_leader(Rank rank) const { return count() > 1 && leader(of(rank)) == rank; }
  /// By node.
  const std::vector<Rank>& leaders() const { return tables_->leaders; }

 private:
  struct Tables {
    explicit Tables(std::vector<Rank> nodes) : node_of(std::move(nodes)) {
      const Rank count = node_of.empty() ? 0 : 1 + *std::max_element(node_of.begin(), node_of.end());
      ranks.resize(static_cast<std::size_t>(count));
      for (std::size_t r = 0; r < node_of.size(); ++r) {
        ranks[static_cast<std::size_t>(node_of[r])].push_back(static_cast<Rank>(r));
      }
      for (const std::vector<Rank>& node : ranks) leaders.push_back(node.front());
    }

    std::vector<Rank> node_of;
    std::vector<std::vector<Rank>> ranks;
    std::vector<Rank> leaders;
  };

  std::shared_ptr<const Tables> tables_;
};

}  // namespace pyc
