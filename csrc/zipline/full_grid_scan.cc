// FullGridScan (ElasticBSP, section 5.1): GridScan with each row designated in turn.
//
// A heuristic, although the paper considers it exhaustive: docs/zipline.md has four workers for which it fails.
//
// Time: O(R n^2); the paper's is O(R^2 n^2), see grid_scan.cc. Memory: O(n) besides the rows.
#include "zipline/algorithms.h"
#include "zipline/grid_scan.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> full_grid_scan(const Rows<Time>& rows) {
  Barrier<Time> best = no_barrier<Time>();
  for (std::size_t designated = 0; designated < rows.size(); ++designated) scan_row(rows, designated, best);
  return best;
}

template Barrier<std::int64_t> full_grid_scan(const Rows<std::int64_t>& rows);
template Barrier<double> full_grid_scan(const Rows<double>& rows);

}  // namespace pyc::zipline
