// The windows of a set of workers: those that have a point of each of them and become shorter at neither end.
//
// A window that starts at some time must end when the last of the workers has come. Of all windows with the same end,
// only the one that starts last is kept. So each has another start and another end, and they are in order of both.
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

/// The windows of all workers of `a` and of `b`, of length `limit` at most, in place of what `joined` has; `scratch` is
/// kept for the next call. `a` and `b` may lack windows longer than the limit: with more workers a window only becomes
/// longer.
///
/// Time: the sum of both lengths.
template <class Time>
void join(const Windows<Time>& a, const Windows<Time>& b, Time limit, Windows<Time>& joined, Windows<Time>& scratch);

}  // namespace pyc::zipline
