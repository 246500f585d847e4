// All windows with a point of every worker, in one pass with constant work per point. Z is never searched. It is stored
// as the position of each worker's latest point on the timeline. A second pointer follows to min(Z), the oldest of
// these points, and never moves back.
//
// Time: O(Rn) after the merge (timeline.h). Memory: O(Rn).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "zipline/rows.h"
#include "zipline/timeline.h"

namespace pyc::zipline {

/// Calls consider(min(Z), max(Z)) for each point that completes a Z, from left to right.
template <class Time, class Consider>
void scan_windows(const Rows<Time>& rows, Consider consider) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  const std::vector<Event<Time>> omega = timeline(rows);
  std::vector<std::size_t> latest(rows.size(), none);  // position in omega of each worker's latest point
  std::size_t missing = rows.size();                   // workers without a point so far
  std::size_t oldest = 0;
  for (std::size_t newest = 0; newest < omega.size(); ++newest) {
    std::size_t& own = latest[omega[newest].worker];
    if (own == none) --missing;
    own = newest;
    if (missing > 0) continue;
    while (latest[omega[oldest].worker] != oldest) ++oldest;
    consider(omega[oldest].time, omega[newest].time);
  }
}

}  // namespace pyc::zipline
