// The candidates of one designated row, which GridScan and FullGridScan look at (ElasticBSP, section 5.1, Algorithm 1
// without its line 4).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::zipline {

/// A barrier that any other one is better than.
template <class Time>
Barrier<Time> no_barrier() {
  constexpr Time worst = std::numeric_limits<Time>::max();
  return {worst, worst, {}};
}

/// For each point of the designated row, the closest point of each other row (line 10), the earlier of two. Replaces
/// `best` by what is shorter, or equally long and earlier.
template <class Time>
void scan_row(const Rows<Time>& rows, std::size_t designated, Barrier<Time>& best);

}  // namespace pyc::zipline
