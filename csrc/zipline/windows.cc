#include "zipline/windows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pyc::zipline {

// A joint window starts at the earlier of two starts and ends at the later of two ends. This loop dominates the cost of
// an update. Which set advances, and whether a window is kept, is almost random, and branches would be mispredicted.
// The loop uses sums instead: every window is written, and one that is not kept is overwritten.
template <class Time>
void join(const Windows<Time>& a, const Windows<Time>& b, Time limit, Windows<Time>& joined, Windows<Time>& scratch) {
  scratch.resize(std::max(scratch.size(), a.size() + b.size() + 2));
  Window<Time>* newest = scratch.data();  // the first window is in the next place
  Time newest_end = std::numeric_limits<Time>::lowest();
  const Window<Time>* of_a = a.data();
  const Window<Time>* of_b = b.data();
  const Window<Time>* const a_end = of_a + a.size();
  const Window<Time>* const b_end = of_b + b.size();
  while (of_a != a_end && of_b != b_end) {
    const Time a_start = of_a->start;
    const Time b_start = of_b->start;
    const Window<Time> both{std::min(a_start, b_start), std::max(of_a->end, of_b->end)};
    const bool is_kept = both.length() <= limit;
    const bool starts_later = newest_end == both.end;  // and replaces the newest
    newest += static_cast<std::ptrdiff_t>(is_kept && !starts_later);
    newest[static_cast<std::size_t>(!is_kept)] = both;
    newest_end = is_kept ? both.end : newest_end;
    of_a += static_cast<std::ptrdiff_t>(a_start <= b_start);
    of_b += static_cast<std::ptrdiff_t>(b_start <= a_start);
  }
  joined.assign(scratch.data() + 1, newest + 1);
}

template void join(const Windows<std::int64_t>& a, const Windows<std::int64_t>& b, std::int64_t limit,
                   Windows<std::int64_t>& joined, Windows<std::int64_t>& scratch);
template void join(const Windows<double>& a, const Windows<double>& b, double limit, Windows<double>& joined,
                   Windows<double>& scratch);

}  // namespace pyc::zipline
