// The barrier of rows that change one at a time: what a controller solves at every push. Our own.
//
// Idea: a binary tree over the workers. Each node has the windows (windows.h) of the workers below it, the root those
// of all, of which the shortest is the barrier. If a row changes, only the nodes between it and the root are joined
// again.
//
// Nodes near the root have many windows, almost all of them longer than those that matter. So the tree keeps only
// windows up to a limit, at which the root had 64. The barrier is exact as long as the root has a window left. If it
// has none, the tree is made again without a limit, which is then chosen anew.
//
// Time of an update: the number of windows on the way to the root. At the leaf they are R; at a node with so many
// workers that its windows pass the limit, few. Worst case O(Rn). Memory: O(Rn log n) at worst.
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
  /// Throws what check_rows throws.
  explicit Incremental(const Rows<Time>& rows);

  /// Replaces the row of a worker, which may get another length. Throws what check_row throws, and changes nothing
  /// then.
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
  Time limit_ = 0;  // no longer window was kept since the tree was made
  Barrier<Time> barrier_{};
};

}  // namespace pyc::zipline
