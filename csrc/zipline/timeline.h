// The points of all workers in the order of time: the set Omega of ZipLine (ElasticBSP, section 5.2, step 1).
//
// The paper sorts, in O(N log N) for N = Rn points. A worker's iterations take about the same time, so its points are
// spread evenly over the timeline; with a bucket of the timeline for each point, a bucket has about one, and the merge
// takes O(N). Where points crowd together their bucket is sorted: at worst, with all points in one, O(N log N) again.
#pragma once

#include <cstdint>
#include <vector>

#include "zipline/rows.h"

namespace pyc::zipline {

/// The triple <t, p, i> of the paper, e_i^p: when worker p ends its i-th iteration.
template <class Time>
struct Event {
  Time time;
  std::uint32_t worker;
  std::uint32_t iteration;
};

/// Points of the same time are in the order of their workers, as ZipLineOptBS needs them (section 5.2).
template <class Time>
bool operator<(const Event<Time>& a, const Event<Time>& b) {
  return a.time < b.time || (a.time == b.time && a.worker < b.worker);
}

template <class Time>
std::vector<Event<Time>> timeline(const Rows<Time>& rows);

}  // namespace pyc::zipline
