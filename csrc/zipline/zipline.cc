// ZipLine (ElasticBSP, section 5.2, Algorithm 2).
//
// Idea: scan Omega from left to right. A new point replaces the point of its worker in Z. Once Z has a point of every
// worker, each new point makes a candidate, which ends at this point and begins at min(Z). Theorem 2: the shortest
// candidate is an optimum.
//
// Time: O(R n^2), because Z is searched for the worker and for its minimum, at each of Rn points. Memory: O(Rn).
#include <algorithm>
#include <vector>

#include "zipline/algorithms.h"
#include "zipline/timeline.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline(const Rows<Time>& rows) {
  std::vector<Event<Time>> z;
  ShortestWindow<Time> shortest;
  for (const Event<Time>& e : timeline(rows)) {
    const auto same_worker = [&](const Event<Time>& other) { return other.worker == e.worker; };
    const auto replaced = std::find_if(z.begin(), z.end(), same_worker);
    if (replaced != z.end()) {
      *replaced = e;
    } else {
      z.push_back(e);
    }
    if (z.size() == rows.size()) shortest.consider(std::min_element(z.begin(), z.end())->time, e.time);
  }
  return shortest.barrier(rows);
}

template Barrier<std::int64_t> zipline(const Rows<std::int64_t>& rows);
template Barrier<double> zipline(const Rows<double>& rows);

}  // namespace pyc::zipline
