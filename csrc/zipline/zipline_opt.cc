// ZipLineOpt (ElasticBSP, section 5.3.1): ZipLine that keeps Z in the order of time.
//
// Idea: (i) If the new point is from the worker of the oldest point of Z, the oldest is removed, the second is the new
// minimum, and the candidate is considered. (ii) Otherwise the minimum stays, so the candidate cannot be shorter
// (Theorem 3), and the worker's earlier point is only found and removed.
//
// Time: a O(Rn) + (1 - a) O(R n^2), where a is the share of case (i). Memory: O(Rn).
#include <algorithm>

#include "zipline/algorithms.h"
#include "zipline/candidate.h"
#include "zipline/timeline.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_opt(const Rows<Time>& rows) {
  Candidate<Time> z(rows.size());
  ShortestWindow<Time> shortest;
  for (const Event<Time>& e : timeline(rows)) {
    const bool was_complete = z.size() == rows.size();
    const bool replaces_oldest = z.size() > 0 && z.oldest().worker == e.worker;
    if (replaces_oldest) {
      z.remove_oldest();
    } else {
      const auto same_worker = [&](const Event<Time>& other) { return other.worker == e.worker; };
      const auto replaced = std::find_if(z.begin(), z.end(), same_worker);
      if (replaced != z.end()) z.remove(replaced);
    }
    z.append(e);
    const bool is_complete = z.size() == rows.size();
    if (is_complete && (replaces_oldest || !was_complete)) shortest.consider(z.oldest().time, e.time);
  }
  return shortest.barrier(rows);
}

template Barrier<std::int64_t> zipline_opt(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_opt(const Rows<double>& rows);

}  // namespace pyc::zipline
