// The points of all workers in the order of time: the set Omega of ZipLine (ElasticBSP, section 5.2, step 1).
//
// The paper sorts, in O(N log N) for N = Rn points. Here the timeline has one bucket per point. Points are about evenly
// spread, so the merge takes O(N). Crowded buckets are sorted; with all points in one, this takes O(N log N) again.
#pragma once

#include <cstdint>
#include <vector>

#include "zipline/rows.h"

namespace pyc::zipline {

/// The triple <t, p, i> of the paper, e_i^p: the time at which worker p ends its i-th iteration.
template <class Time>
struct Event {
  Time time;
  std::uint32_t worker;
  std::uint32_t iteration;
};

/// Points of equal time are in the order of their workers, as ZipLineOptBS requires (section 5.2).
template <class Time>
bool operator<(const Event<Time>& a, const Event<Time>& b) {
  return a.time < b.time || (a.time == b.time && a.worker < b.worker);
}

template <class Time>
std::vector<Event<Time>> timeline(const Rows<Time>& rows);

}  // namespace pyc::zipline
