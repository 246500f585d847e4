// Prevents update isolation (docs/groups.md): groups chosen by speed may always have the same members, whose weights
// never mix with the others'. As in the filter of P-Reduce (SIGMOD 2021), if the graph that joins the members of the
// newest groups falls into components, the next groups must bridge two of them. Workers without a group in the window
// are ignored.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

class Connectivity {
 public:
  /// `size`: number of workers. Checks the newest `window` groups after every `period` groups; never if `window` is 0.
  Connectivity(Rank size, std::size_t window, std::size_t period);

  /// Whether the next group should join two components.
  bool wants_bridge() const { return components_ > 1; }
  bool are_apart(Rank a, Rank b) const {
    const Rank first = label(a);
    const Rank second = label(b);
    return first != kNoRank && second != kNoRank && first != second;
  }

  /// Call this in the order in which groups are generated. Groups of one worker are ignored.
  void note(std::span<const Rank> group);

 private:
  Rank label(Rank rank) const { return labels_[static_cast<std::size_t>(rank)]; }
  Rank root(Rank rank);
  void join(std::span<const Rank> group);
  void look_again();

  std::size_t period_;
  std::vector<std::vector<Rank>> window_;  // a ring
  std::size_t noted_ = 0;
  std::vector<Rank> labels_;  // root of the worker's component; kNoRank: in no group of the window
  std::vector<Rank> parent_;
  std::size_t components_ = 0;
};

}  // namespace pyc
