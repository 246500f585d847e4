// The candidates of one designated row, for GridScan and FullGridScan (ElasticBSP, section 5.1, Algorithm 1 without
// line 4).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::zipline {

/// Worse than any other barrier.
template <class Time>
Barrier<Time> no_barrier() {
  constexpr Time worst = std::numeric_limits<Time>::max();
  return {worst, worst, {}};
}

/// For each point of the designated row, takes the closest point of each other row (line 10), the earlier of two.
/// Replaces `best` by a barrier that is shorter, or equally long and earlier.
template <class Time>
void scan_row(const Rows<Time>& rows, std::size_t designated, Barrier<Time>& best);

}  // namespace pyc::zipline
