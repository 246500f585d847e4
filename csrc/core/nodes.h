// The nodes of a communicator. The ranks of a node work together in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/types.h"

namespace pyc {

/// Nodes are numbered from 0 without gaps, in the order of their lowest ranks. The lowest rank of a node is its
/// *leader*, which represents the node. Copies share their tables, since all ranks may be in one process.
class Nodes {
 public:
  explicit Nodes(std::vector<Rank> node_of) : tables_(std::make_shared<const Tables>(std::move(node_of))) {}

  /// Nodes of consecutive ranks, equally many except on the last. With one rank per node, all data travels in messages.
  static Nodes of_size(Rank size, Rank ranks_per_node) {
    std::vector<Rank> node_of;
    for (Rank r = 0; r < size; ++r) node_of.push_back(r / ranks_per_node);
    return Nodes(std::move(node_of));
  }

  Rank size() const { return static_cast<Rank>(tables_->node_of.size()); }
  Rank count() const { return static_cast<Rank>(tables_->ranks.size()); }
  Rank of(Rank rank) const { return tables_->node_of[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  const std::vector<Rank>& ranks(Rank node) const { return tables_->ranks[static_cast<std::size_t>(node)]; }
  /// The ranks of the node of `rank`, ascending. `local_rank_of` is the index of `rank` among them.
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
  /// Whether `rank` represents its node to other nodes; false if there are none.
  bool is_leader(Rank rank) const { return count() > 1 && leader(of(rank)) == rank; }
  /// Indexed by node.
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
