// GridScan (ElasticBSP, section 5.1, Algorithm 1): a heuristic that may miss the optimum.
//
// Idea: a point of the designated row, the one with the earliest point (line 4), and the closest points of the other
// rows make a candidate. A closest point may be on the wrong side: points close to one point need not be close to each
// other.
//
// Time: O(Rn). The paper searches each row from its start, O(R^2 n). The closest points only move forward with the
// designated point, so here a search continues where the last one ended. Memory: O(n) besides the rows.
#include "zipline/grid_scan.h"

#include <algorithm>
#include <utility>

#include "zipline/algorithms.h"

namespace pyc::zipline {
namespace {

template <class Time>
Time distance(Time a, Time b) {
  return a < b ? b - a : a - b;
}

template <class Time>
std::size_t closest(std::span<const Time> row, Time time, std::size_t place) {
  while (place + 1 < row.size() && distance(row[place + 1], time) < distance(row[place], time)) ++place;
  return place;
}

}  // namespace

template <class Time>
void scan_row(const Rows<Time>& rows, std::size_t designated, Barrier<Time>& best) {
  std::vector<std::int64_t> z(rows.size(), 0);
  for (const Time time : rows[designated]) {
    Time start = time;
    Time end = time;
    for (std::size_t worker = 0; worker < rows.size(); ++worker) {
      const std::size_t place = closest(rows[worker], time, static_cast<std::size_t>(z[worker]));
      z[worker] = static_cast<std::int64_t>(place);
      start = std::min(start, rows[worker][place]);
      end = std::max(end, rows[worker][place]);
    }
    if (std::pair(end - start, end) < std::pair(best.d, best.t_sync)) best = {end, end - start, z};
  }
}

template <class Time>
Barrier<Time> grid_scan(const Rows<Time>& rows) {
  std::size_t designated = 0;
  for (std::size_t worker = 1; worker < rows.size(); ++worker) {
    if (rows[worker].front() < rows[designated].front()) designated = worker;
  }
  Barrier<Time> best = no_barrier<Time>();
  scan_row(rows, designated, best);
  return best;
}

template void scan_row(const Rows<std::int64_t>& rows, std::size_t designated, Barrier<std::int64_t>& best);
template void scan_row(const Rows<double>& rows, std::size_t designated, Barrier<double>& best);
template Barrier<std::int64_t> grid_scan(const Rows<std::int64_t>& rows);
template Barrier<double> grid_scan(const Rows<double>& rows);

}  // namespace pyc::zipline
