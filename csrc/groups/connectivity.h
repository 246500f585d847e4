// Against update isolation: whether the newest groups connect all workers that were in them.
//
// Groups chosen by speed may for ever be chosen among the same workers, whose weights then never meet the others'. The
// filter of P-Reduce (SIGMOD 2021) keeps the groups of a window; if the graph in which the members of a group are
// joined falls into components, the next groups are to bridge two of them. A worker that was in no group of the window
// has no component: it brings nothing that could be isolated, and is not waited for.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

class Connectivity {
 public:
  /// Looks at the newest `window` groups of `size` workers each time that `period` new ones are there; 0: never.
  Connectivity(Rank size, std::size_t window, std::size_t period);

  /// Whether the next group is to join two components.
  bool wants_bridge() const { return components_ > 1; }
  bool are_apart(Rank a, Rank b) const {
    const Rank first = label(a);
    const Rank second = label(b);
    return first != kNoRank && second != kNoRank && first != second;
  }

  /// In the order in which groups are generated. Groups of one say nothing.
  void note(std::span<const Rank> group);

 private:
  Rank label(Rank rank) const { return labels_[static_cast<std::size_t>(rank)]; }
  Rank root(Rank rank);
  void join(std::span<const Rank> group);
  void look_again();

  std::size_t period_;
  std::vector<std::vector<Rank>> window_;  // a ring
  std::size_t noted_ = 0;
  std::vector<Rank> labels_;  // a root of each worker's component; kNoRank: in no group of the window
  std::vector<Rank> parent_;
  std::size_t components_ = 0;
};

}  // namespace pyc
