// ZipLine in one pass with constant work per point (linear_scan.h): ours, and the default.
#include "zipline/algorithms.h"
#include "zipline/linear_scan.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_linear(const Rows<Time>& rows) {
  ShortestWindow<Time> shortest;
  scan_windows(rows, [&](Time start, Time end) { shortest.consider(start, end); });
  return shortest.barrier(rows);
}

template Barrier<std::int64_t> zipline_linear(const Rows<std::int64_t>& rows);
template Barrier<double> zipline_linear(const Rows<double>& rows);

}  // namespace pyc::zipline
