// ZipLine in one pass with constant work per point: our own, and the default.
//
// Idea: Z never has to be searched. Keep where each worker's latest point is on the timeline; these points are Z. The
// new point takes the place of its worker's earlier one by one assignment. min(Z) is the oldest point that is still
// its worker's latest: a second pointer follows the first along the timeline, past the points that have been replaced,
// and never goes back.
//
// Time: O(Rn) after the merge (timeline.h). Memory: O(Rn).
#include <cstddef>
#include <limits>
#include <vector>

#include "zipline/algorithms.h"
#include "zipline/timeline.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_linear(const Rows<Time>& rows) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  const std::vector<Event<Time>> omega = timeline(rows);
  std::vector<std::size_t> latest(rows.size(), none);  // position in omega of each worker's latest point
  std::size_t missing = rows.size();                   // workers without a point so far
  std::size_t oldest = 0;
  ShortestWindow<Time> shortest;
  for (std::size_t newest = 0; newest < omega.size(); ++newest) {
    std::size_t& own = latest[omega[newest].worker];
    if (own == none) --missing;
    own = newest;
    if (missing > 0) continue;
    while (latest[omega[oldest].worker] != oldest) ++oldest;
    shortest.consider(omega[oldest].time, omega[newest].time);
  }
  return shortest.barrier(rows);
}

template Barrier<std::int64_t> zipline_linear(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_linear(const Rows<double>& rows);

}  // namespace pyc::zipline
