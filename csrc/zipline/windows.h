// The minimal windows of a set of workers. They have a point of every worker, and cannot be shortened at either end. Of
// all windows with the same end, only the one with the latest start is kept. All starts and all ends therefore differ,
// and the windows are in order of both.
#pragma once

#include <vector>

namespace pyc::zipline {

template <class Time>
struct Window {
  Time start;
  Time end;

  Time length() const { return end - start; }
};

template <class Time>
using Windows = std::vector<Window<Time>>;

/// Replaces `joined` by the windows of all workers of `a` and `b`, of length `limit` at most. `scratch` is reused by
/// the next call. `a` and `b` may lack windows longer than the limit, since windows only become longer with more
/// workers. Time: the sum of both lengths.
template <class Time>
void join(const Windows<Time>& a, const Windows<Time>& b, Time limit, Windows<Time>& joined, Windows<Time>& scratch);

}  // namespace pyc::zipline
