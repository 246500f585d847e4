// ZipLineOptBS (ElasticBSP, section 5.3.2): ZipLineOpt that finds the point to remove by binary search.
//
// Idea: the matrix M of all rows has the time of the worker's previous point, e_{i-1}^p, for a new point e_i^p. Z is
// sorted by time and, for equal times, by worker, so a binary search finds the previous point.
//
// Time: a O(Rn) + (1 - a) O(Rn log n) comparisons, and moves of up to n points per step, which the paper leaves out.
// Memory: O(Rn).
#include <algorithm>

#include "zipline/algorithms.h"
#include "zipline/candidate.h"
#include "zipline/timeline.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_opt_bs(const Rows<Time>& rows) {
  Candidate<Time> z(rows.size());
  ShortestWindow<Time> shortest;
  for (const Event<Time>& e : timeline(rows)) {
    const bool was_complete = z.size() == rows.size();
    const bool replaces_oldest = z.size() > 0 && z.oldest().worker == e.worker;
    if (replaces_oldest) {
      z.remove_oldest();
    } else if (e.iteration > 0) {
      const Event<Time> previous{rows[e.worker][e.iteration - 1], e.worker, e.iteration - 1};
      z.remove(std::lower_bound(z.begin(), z.end(), previous));
    }
    z.append(e);
    const bool is_complete = z.size() == rows.size();
    if (is_complete && (replaces_oldest || !was_complete)) shortest.consider(z.oldest().time, e.time);
  }
  return shortest.barrier(rows);
}

template Barrier<std::int64_t> zipline_opt_bs(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_opt_bs(const Rows<double>& rows);

}  // namespace pyc::zipline
