// When to impose the next barrier (ElasticBSP, Problem 1): the end of the earliest window of least length that has a
// point of every worker. One file for each algorithm.
//
// | algorithm      | exact | time, for n workers of R points each            |
// |----------------|-------|-------------------------------------------------|
// | zipline_linear | yes   | O(Rn) and the merge (timeline.h); our own       |
// | zipline        | yes   | O(R n^2)                                        |
// | zipline_opt    | yes   | O(R n^2), less where the oldest point goes      |
// | zipline_opt_bs | yes   | O(Rn log n) comparisons, O(R n^2) to move memory|
// | grid_scan      | no    | O(Rn)                                           |
// | full_grid_scan | no    | O(R n^2)                                        |
//
// All expect rows that check_rows accepts, with T = std::int64_t or double.
#pragma once

#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_linear(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline_opt(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline_opt_bs(const Rows<Time>& rows);
template <class Time>
Barrier<Time> grid_scan(const Rows<Time>& rows);
template <class Time>
Barrier<Time> full_grid_scan(const Rows<Time>& rows);

}  // namespace pyc::zipline
