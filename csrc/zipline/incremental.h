// The barrier of rows that change one at a time, for a controller that solves at every push. Ours.
//
// Idea: a binary tree over the workers, whose nodes have the windows (windows.h) of the workers below them. The
// shortest window of the root is the barrier. An update joins the nodes between its row and the root again. The tree
// only keeps windows up to a limit; if the root has none left, the tree is built again, and a new limit is chosen.
//
// Time of an update: the number of windows on the way to the root, at most O(Rn). Memory: at most O(Rn log n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zipline/barrier.h"
#include "zipline/rows.h"
#include "zipline/windows.h"

namespace pyc::zipline {

template <class Time>
class Incremental {
 public:
  /// Throws as check_rows does.
  explicit Incremental(const Rows<Time>& rows);

  /// Replaces the row of a worker, whose length may change. Throws as check_row does, and then changes nothing.
  const Barrier<Time>& update(std::size_t worker, std::span<const Time> row);

  const Barrier<Time>& barrier() const { return barrier_; }
  std::size_t size() const { return size_; }

 private:
  void set_row(std::size_t worker, std::span<const Time> row);
  void join_children(std::size_t node);
  void make_tree();
  bool tighten_limit();
  void choose_shortest();
  std::int64_t iteration_of(std::size_t worker) const;

  std::size_t size_;
  std::vector<Windows<Time>> nodes_;  // 1 is the root, 2k and 2k + 1 are the children of k, the last `size_` the leaves
  Windows<Time> scratch_;
  Time limit_ = 0;  // longer windows may be missing since the tree was built
  Barrier<Time> barrier_{};
};

}  // namespace pyc::zipline
