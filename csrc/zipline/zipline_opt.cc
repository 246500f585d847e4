// ZipLineOpt (ElasticBSP, section 5.3.1): ZipLine that keeps Z in the order of time. ZipLineOptBS (section 5.3.2) finds
// the point to remove by binary search.
//
// Idea: (i) If the new point is from the worker of the oldest point of Z, the oldest is removed, the second is the new
// minimum, and the candidate is considered. (ii) Otherwise the minimum stays, so the candidate cannot be shorter
// (Theorem 3), and the worker's earlier point is only found and removed. ZipLineOptBS knows the time e_{i-1}^p of the
// point before e_i^p from the matrix M of all rows, and Z is sorted by time and, for equal times, by worker.
//
// Time: a is the share of case (i). ZipLineOpt: a O(Rn) + (1 - a) O(R n^2). ZipLineOptBS: a O(Rn) + (1 - a) O(Rn log n)
// comparisons, and moves of up to n points per step, which the paper leaves out. Memory: O(Rn).
#include <algorithm>

#include "zipline/algorithms.h"
#include "zipline/candidate.h"
#include "zipline/timeline.h"

namespace pyc::zipline {
namespace {

/// `find(z, e)`: the earlier point in Z of the worker of `e`, or the end.
template <class Time, class Find>
Barrier<Time> scan(const Rows<Time>& rows, Find find) {
  Candidate<Time> z(rows.size());
  ShortestWindow<Time> shortest;
  for (const Event<Time>& e : timeline(rows)) {
    const bool was_complete = z.size() == rows.size();
    const bool replaces_oldest = z.size() > 0 && z.oldest().worker == e.worker;
    if (replaces_oldest) {
      z.remove_oldest();
    } else if (const auto replaced = find(z, e); replaced != z.end()) {
      z.remove(replaced);
    }
    z.append(e);
    const bool is_complete = z.size() == rows.size();
    if (is_complete && (replaces_oldest || !was_complete)) shortest.consider(z.oldest().time, e.time);
  }
  return shortest.barrier(rows);
}

}  // namespace

template <class Time>
Barrier<Time> zipline_opt(const Rows<Time>& rows) {
  return scan(rows, [](Candidate<Time>& z, const Event<Time>& e) {
    return std::find_if(z.begin(), z.end(), [&](const Event<Time>& other) { return other.worker == e.worker; });
  });
}

template <class Time>
Barrier<Time> zipline_opt_bs(const Rows<Time>& rows) {
  return scan(rows, [&rows](Candidate<Time>& z, const Event<Time>& e) {
    if (e.iteration == 0) return z.end();
    return std::lower_bound(z.begin(), z.end(),
                            Event<Time>{rows[e.worker][e.iteration - 1], e.worker, e.iteration - 1});
  });
}

template Barrier<std::int64_t> zipline_opt(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_opt(const Rows<double>& rows);
template Barrier<std::int64_t> zipline_opt_bs(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_opt_bs(const Rows<double>& rows);

}  // namespace pyc::zipline
